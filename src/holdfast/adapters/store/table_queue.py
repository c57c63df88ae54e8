"""The queue of runs on SQLite: the table of runs itself, in the order of its rows. One process uses it at a time."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace
from sqlalchemy import (
    ColumnClause,
    Connection,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from holdfast.adapters.store import run_list, tables
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.run_claims import claim_run, find_claimed, list_owners, release_runs
from holdfast.core.lifecycle import HOLDING, LIVE
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claimant
from holdfast.ports.store import QueueDepth

_runs = tables.runs
_others = _runs.alias("other")

# Every table of SQLite has it, in the order of insertion. A clock may be set back.
_row: ColumnClause[int] = literal_column("runs.rowid")
_other_row: ColumnClause[int] = literal_column("other.rowid")

_is_waiting = and_(run_list.IS_LIVE, _runs.c.owner_id.is_(None))
_is_blocked = exists().where(
    _others.c.thread_id == _runs.c.thread_id,
    run_list.status_condition(LIVE, _others.name),
    _others.c.id != _runs.c.id,
    or_(
        _others.c.owner_id.is_not(None),
        and_(
            # A run that was released still holds its thread.
            _runs.c.status == RunStatus.QUEUED,
            or_(run_list.status_condition(HOLDING, _others.name), _other_row < _row),
        ),
    ),
)
_select_next = PreparedStatement(
    select(_runs.c.id)
    .where(_is_waiting, ~_is_blocked)
    .order_by(_runs.c.status == RunStatus.QUEUED, _row)
    .limit(1)
)
_select_waiting = PreparedStatement(select(_runs.c.id).where(_is_waiting).limit(1))
_select_live_in_thread = PreparedStatement(
    select(_runs.c.id).where(_runs.c.thread_id == bindparam("thread"), run_list.IS_LIVE).limit(1)
)


class TableQueue:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def enter(self, run: Run, claimant: Claimant | None) -> Run:
        """Return the new run as it must be stored: claimed if nothing is before it in its thread."""
        if claimant is None:
            return run
        if _select_live_in_thread.fetch_first(self._connection, {"thread": run.thread_id}):
            return run
        return replace(run, owner_id=claimant.server_id, fence=run.fence + 1)

    def lock(self, run_id: str) -> None:
        """Nobody else writes: SQLite has one writer."""

    def leave(self, run: Run) -> None:
        """The run has ended: its status says so."""

    def claim_next(self, claimant: Claimant) -> str | None:
        found = _select_next.fetch_first(self._connection, {})
        if found is None or not claim_run(self._connection, found[0], claimant.server_id):
            return None
        return str(found[0])

    def is_empty(self) -> bool:
        return _select_waiting.fetch_first(self._connection, {}) is None

    def measure(self) -> QueueDepth:
        measured = select(func.count(), func.min(_runs.c.created_at)).where(_is_waiting)
        waiting, oldest_at = self._connection.execute(measured).one()
        return QueueDepth(waiting, oldest_at)

    def find_holder(self, thread_id: str) -> str | None:
        return find_claimed(self._connection, thread_id)

    def list_owners(self) -> Sequence[str]:
        return list_owners(self._connection)

    def release(self, server_ids: Collection[str], keep: Collection[str] = ()) -> int:
        return len(release_runs(self._connection, server_ids, keep))
