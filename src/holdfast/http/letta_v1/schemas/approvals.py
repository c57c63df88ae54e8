"""The inbox of what waits for a person. Not in V1."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from holdfast.core.deadlines import OnTimeout
from holdfast.http.letta_v1.schemas.messages import ApprovalReturn, ToolCall, ToolReturn
from holdfast.http.letta_v1.schemas.send import DecidedBy, Entry, Lenient, Partial


class CallDeadline(Struct, frozen=True, kw_only=True):
    """Until when a call waits, and what becomes of it then. ``fail``: its client gave no result in time."""

    tool_call_id: str
    expires_at: datetime
    on_timeout: OnTimeout


class Approval(Struct, frozen=True, kw_only=True):
    """A request for a person's answer. ``id`` is the one of its approval_request_message."""

    id: str
    status: Literal["pending", "decided"]
    agent_id: str
    conversation_id: str | None
    # The run that asked, and its step.
    run_id: str | None
    step_id: str | None
    # The run that waits for the answer, while one does: after an answer in part another than the one that asked.
    waiting_run_id: str | None
    created_at: datetime
    tool_calls: list[ToolCall]
    approvals: list[ApprovalReturn | ToolReturn]
    # When the first of the calls that are still open expires, and when each of them does.
    expires_at: datetime | None
    deadlines: list[CallDeadline]


class DecideBody(Lenient):
    """Either one word for all calls, or an entry for each."""

    approve: bool | None = None
    reason: str | None = None
    approvals: Annotated[list[Entry] | None, Field(min_length=1)] = None
    decided_by: DecidedBy = None
    partial: Partial = False
