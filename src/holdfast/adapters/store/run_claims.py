"""What both queues have in common: giving a run to a server and taking it back. Each raises the run's fence."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, Row, bindparam, select, update

from holdfast.adapters.store import run_list, tables
from holdfast.adapters.store.prepared_statement import PreparedStatement

_runs = tables.runs

_next_fence = _runs.c.fence + 1
_claim = PreparedStatement(
    update(_runs)
    .where(_runs.c.id == bindparam("this_id"), _runs.c.owner_id.is_(None))
    .values(owner_id=bindparam("owner"), fence=_next_fence)
)
_select_claimed = select(_runs.c.id).where(
    _runs.c.thread_id == bindparam("thread"), run_list.IS_LIVE, _runs.c.owner_id.is_not(None)
)
_select_owners = (
    select(_runs.c.owner_id).where(run_list.IS_LIVE, _runs.c.owner_id.is_not(None)).distinct()
)


def claim_run(connection: Connection, run_id: str, server_id: str) -> bool:
    """Give an unclaimed run to the server; return whether it was there."""
    return _claim.execute(connection, {"this_id": run_id, "owner": server_id}) > 0


def release_runs(
    connection: Connection, server_ids: Collection[str], keep: Collection[str] = ()
) -> Sequence[Row[tuple[str, str, str]]]:
    """Take the live runs of these servers back, but those to keep; return the id, the thread and the status of each."""
    released = (
        update(_runs)
        .where(run_list.IS_LIVE, _runs.c.owner_id.in_(server_ids), _runs.c.id.not_in(keep))
        .values(owner_id=None, fence=_next_fence)
        .returning(_runs.c.id, _runs.c.thread_id, _runs.c.status)
    )
    return connection.execute(released).all()


def list_owners(connection: Connection) -> Sequence[str]:
    """Return the ids of all servers that have live runs."""
    return connection.execute(_select_owners).scalars().all()


def find_claimed(connection: Connection, thread_id: str) -> str | None:
    """Return the id of the live run of the thread that a server has."""
    return connection.execute(_select_claimed, {"thread": thread_id}).scalar()
