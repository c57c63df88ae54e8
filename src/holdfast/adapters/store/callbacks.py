"""Callbacks that are due. A row has the time of its next attempt; a claim moves that time."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from sqlalchemy import Connection, bindparam, func, insert, literal, select, tuple_, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback, DueCallback
from holdfast.core.runs import Run

_callbacks = tables.callbacks

_insert = PreparedStatement(insert(_callbacks))
_next_due = PreparedStatement(
    select(func.min(_callbacks.c.due_at, type_=_callbacks.c.due_at.type)).where(
        _callbacks.c.due_at > bindparam("after")
    )
)
_update_as_seen = update(_callbacks).where(
    _callbacks.c.run_id == bindparam("this_run"), _callbacks.c.attempts == bindparam("seen")
)
_claim = PreparedStatement(
    _update_as_seen.where(_callbacks.c.due_at == bindparam("was_due")),
    columns=("due_at", "attempts"),
)
_record_outcome = PreparedStatement(
    _update_as_seen, columns=("due_at", "sent_at", "status_code", "error")
)
_release = PreparedStatement(_update_as_seen, columns=("due_at",))


class SqlCallbacks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_due_at(self, after: datetime) -> datetime | None:
        row = _next_due.fetch_first(self._connection, {"after": after})
        due: datetime | None = None if row is None else row[0]
        return due

    def list_due(
        self, now: datetime, *, limit: int, per_host: int, in_flight: Mapping[str, int]
    ) -> Sequence[DueCallback]:
        found: list[DueCallback] = []
        hosts = Counter(in_flight)
        seen: DueCallback | None = None
        # A host that has enough is excluded from the next batch, and each batch starts where the last one ended.
        while len(found) < limit:
            full = [host for host, count in hosts.items() if count >= per_host]
            batch = self._next_due_batch(seen, now, full, limit)
            for seen in batch:
                if hosts[seen.host] < per_host and len(found) < limit:
                    hosts[seen.host] += 1
                    found.append(seen)
            if len(batch) < limit:
                break
        return found

    def claim(self, due: Sequence[DueCallback], until: datetime) -> Sequence[ClaimedCallback]:
        return [
            ClaimedCallback(run_id=seen.run_id, host=seen.host, attempts=seen.attempts + 1)
            for seen in due
            if self._try_claim(seen, until)
        ]

    def record_outcome(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, due_at: datetime | None
    ) -> None:
        _record_outcome.execute(
            self._connection,
            {
                "this_run": claimed.run_id,
                "seen": claimed.attempts,
                "due_at": due_at,
                "sent_at": outcome.sent_at,
                "status_code": outcome.status_code,
                "error": outcome.error,
            },
        )

    def release(self, claimed: ClaimedCallback, due_at: datetime) -> None:
        which = {"this_run": claimed.run_id, "seen": claimed.attempts, "due_at": due_at}
        _release.execute(self._connection, which)

    def _next_due_batch(
        self, position: DueCallback | None, now: datetime, full: Sequence[str], limit: int
    ) -> Sequence[DueCallback]:
        """Return the next callbacks that are due after ``position``, without those of the full hosts."""
        c = _callbacks.c
        query = select(c.run_id, c.host, c.attempts, c.due_at).where(
            c.due_at <= now, c.host.not_in(full)
        )
        if position is not None:
            last = (
                literal(position.due_at, c.due_at.type),
                literal(position.run_id, c.run_id.type),
            )
            query = query.where(tuple_(c.due_at, c.run_id) > tuple_(*last))
        rows = self._connection.execute(query.order_by(c.due_at, c.run_id).limit(limit))
        return [
            DueCallback(run_id=run_id, host=host, attempts=attempts, due_at=due_at)
            for run_id, host, attempts, due_at in rows
        ]

    def _try_claim(self, seen: DueCallback, until: datetime) -> bool:
        """Claim the callback by compare-and-set: of two processes only one succeeds."""
        row = {
            "this_run": seen.run_id,
            "seen": seen.attempts,
            "was_due": seen.due_at,
            "due_at": until,
            "attempts": seen.attempts + 1,
        }
        return _claim.execute(self._connection, row) > 0


def add_due(connection: Connection, run: Run) -> None:
    """Make the callback of a run that has just ended due, if the run has one."""
    if run.request.callback_url is None:
        return
    _insert.execute(
        connection,
        {
            "run_id": run.id,
            "host": urlsplit(run.request.callback_url).hostname or "",
            "attempts": 0,
            "due_at": run.completed_at or run.created_at,
            "sent_at": None,
            "status_code": None,
            "error": None,
        },
    )


def load_outcomes(connection: Connection, run_ids: Collection[str]) -> dict[str, CallbackOutcome]:
    if not run_ids:
        return {}
    rows = connection.execute(
        select(
            _callbacks.c.run_id,
            _callbacks.c.sent_at,
            _callbacks.c.status_code,
            _callbacks.c.error,
        ).where(_callbacks.c.run_id.in_(run_ids))
    )
    return {
        row.run_id: CallbackOutcome(
            sent_at=row.sent_at, status_code=row.status_code, error=row.error
        )
        for row in rows
    }
