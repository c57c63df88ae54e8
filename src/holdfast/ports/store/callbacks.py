"""Callbacks: HTTP requests that tell a caller that a run has ended. At most one per run; see ``Runs.transition``."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback, DueCallback


class Callbacks(Protocol):
    def list_due(
        self, now: datetime, *, limit: int, per_host: int, in_flight: Mapping[str, int]
    ) -> Sequence[DueCallback]:
        """Return up to ``limit`` callbacks that are due, the longest due first.

        With those that are ``in_flight`` (a count by host), no host gets more than ``per_host``. All due callbacks
        of a host that has enough are skipped one by one, so call this when nothing else waits for the store."""
        ...

    def claim(self, due: Sequence[DueCallback], until: datetime) -> Sequence[ClaimedCallback]:
        """Claim those of the callbacks that have not changed since they were read, and return them. No other process
        can claim them before ``until``."""
        ...

    def record_outcome(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, due_at: datetime | None
    ) -> None:
        """Store the outcome of an attempt and the time of the next one, if there is a next one. Does nothing if
        another process has claimed the callback meanwhile or the run is deleted."""
        ...

    def release(self, claimed: ClaimedCallback, due_at: datetime) -> None:
        """Give up a claim whose attempt did not finish: the callback is due again, without an outcome."""
        ...

    def next_due_at(self, after: datetime) -> datetime | None:
        """Return the time at which the next callback after ``after`` is due; None if there is none."""
        ...
