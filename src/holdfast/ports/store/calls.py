"""Open tool calls, and the approval requests that wait for a person."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.approvals import ApprovalQuery, OverdueRequest
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Message, OpenCall


class Calls(Protocol):
    """A tool call is open from the model's answer until its result message is stored: it is written before the tool
    starts, so that a crash never loses it."""

    def list_open(self, thread_id: str) -> Sequence[OpenCall]:
        """Return the open calls of the thread, in the order of the model's answer."""
        ...

    def put(self, thread_id: str, calls: Sequence[OpenCall]) -> None:
        """Add calls, or replace the state, result and deadline of calls that are stored already."""
        ...

    def close(self, thread_id: str) -> None:
        """Delete all open calls of the thread: each of them has its result message now."""
        ...

    def list_requests(self, organization_id: str, query: ApprovalQuery) -> Sequence[Message]:
        """Return one page of the messages that ask for an approval, of all threads whose run is paused. They are
        sorted by age, or by ``expires_at``, the first deadline among the calls; those without one come last."""
        ...

    def count_requests(self, organization_id: str, query: ApprovalQuery) -> int:
        """Count the requests that match, on all pages."""
        ...

    def deadlines(self, thread_ids: Collection[str]) -> Mapping[str, Mapping[str, Deadline]]:
        """Return the deadlines by thread and call. Only calls with a deadline have an entry."""
        ...

    def list_overdue(self, now: datetime) -> Sequence[OverdueRequest]:
        """Return the requests of all organisations that wait for a person and have a call whose deadline has passed,
        the longest overdue first."""
        ...

    def next_deadline(self, now: datetime) -> datetime | None:
        """Return the first deadline after ``now`` of any request; None if there is none."""
        ...
