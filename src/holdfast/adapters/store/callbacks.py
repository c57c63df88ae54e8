"""The outbox of callbacks. A row has a time at which it may be tried next; claiming it moves that time."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from sqlalchemy import Connection, bindparam, func, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared import Prepared
from holdfast.core.callbacks import CallbackOutcome, ClaimedCallback
from holdfast.core.runs import Run

_callbacks = tables.callbacks

_owe = Prepared(insert(_callbacks))
_next_due = Prepared(
    select(func.min(_callbacks.c.due_at, type_=_callbacks.c.due_at.type)).where(
        _callbacks.c.due_at > bindparam("after")
    )
)
_mine = update(_callbacks).where(
    _callbacks.c.run_id == bindparam("this_run"), _callbacks.c.attempts == bindparam("seen")
)
_claim = Prepared(
    _mine.where(_callbacks.c.due_at == bindparam("was_due")), columns=("due_at", "attempts")
)
_settle = Prepared(_mine, columns=("due_at", "sent_at", "status_code", "error"))
_give_back = Prepared(_mine, columns=("due_at",))


class SqlCallbacks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def next_due(self, after: datetime) -> datetime | None:
        row = _next_due.row(self._connection, {"after": after})
        due: datetime | None = None if row is None else row[0]
        return due

    def claim(
        self,
        now: datetime,
        until: datetime,
        *,
        limit: int,
        per_host: int,
        under_way: Mapping[str, int],
    ) -> Sequence[ClaimedCallback]:
        taken: list[ClaimedCallback] = []
        hosts = Counter(under_way)
        for found, due_at in self._due(now, hosts, per_host):
            if len(taken) == limit:
                break
            if self._take(found, due_at, until):
                hosts[found.host] += 1
                taken.append(found)
        return taken

    def settle(
        self, claimed: ClaimedCallback, outcome: CallbackOutcome, due_at: datetime | None
    ) -> None:
        _settle.run(
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

    def give_back(self, claimed: ClaimedCallback, due_at: datetime) -> None:
        which = {"this_run": claimed.run_id, "seen": claimed.attempts, "due_at": due_at}
        _give_back.run(self._connection, which)

    def _due(
        self, now: datetime, hosts: Counter[str], per_host: int
    ) -> Iterator[tuple[ClaimedCallback, datetime]]:
        """What may be tried, the longest due first, leaving out hosts as they get enough."""
        passed: set[str] = set()
        while True:
            full = [host for host, count in hosts.items() if count >= per_host]
            row = self._connection.execute(
                select(
                    _callbacks.c.run_id,
                    _callbacks.c.host,
                    _callbacks.c.attempts,
                    _callbacks.c.due_at,
                )
                .where(
                    _callbacks.c.due_at <= now,
                    _callbacks.c.host.not_in(full),
                    _callbacks.c.run_id.not_in(passed),
                )
                .order_by(_callbacks.c.due_at, _callbacks.c.run_id)
                .limit(1)
            ).first()
            if row is None:
                return
            passed.add(row.run_id)
            claimed = ClaimedCallback(run_id=row.run_id, host=row.host, attempts=row.attempts + 1)
            yield claimed, row.due_at

    def _take(self, found: ClaimedCallback, due_at: datetime, until: datetime) -> bool:
        """Compare-and-set: of two who want it one gets it."""
        row = {
            "this_run": found.run_id,
            "seen": found.attempts - 1,
            "was_due": due_at,
            "due_at": until,
            "attempts": found.attempts,
        }
        return _claim.run(self._connection, row) > 0


def owe(connection: Connection, run: Run) -> None:
    """The run has just ended: whoever asked for it is to be told."""
    if run.request.callback_url is None:
        return
    _owe.run(
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


def outcomes(connection: Connection, run_ids: Collection[str]) -> dict[str, CallbackOutcome]:
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
