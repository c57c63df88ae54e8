"""Threads whose system message must be compiled again before the next model call."""

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.adapters.store import tables
from holdfast.adapters.store.prepared_statement import PreparedStatement

_marks = tables.stale_prompts
_threads = tables.threads

_take = PreparedStatement(delete(_marks).where(_marks.c.thread_id == bindparam("thread")))


class SqlStalePrompts:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def mark(self, agent_ids: Collection[str], *, except_threads: Collection[str] = ()) -> None:
        if not agent_ids:
            return
        # In the order of their ids, so that two transactions do not wait for each other.
        marked = (
            select(_threads.c.id)
            .where(
                _threads.c.agent_id.in_(agent_ids),
                _threads.c.deleted_at.is_(None),
                _threads.c.id.not_in(except_threads),
            )
            .order_by(_threads.c.id)
        )
        dialects = postgresql if self._connection.dialect.name == "postgresql" else sqlite
        insert = dialects.insert(_marks).from_select(["thread_id"], marked)
        # An existing mark is written again, not left alone: the write waits for a transaction that takes the mark, and
        # that one has not seen what this one has changed.
        again = insert.on_conflict_do_update(
            index_elements=["thread_id"], set_={"thread_id": insert.excluded.thread_id}
        )
        self._connection.execute(again)

    def is_stale(self, thread_id: str) -> bool:
        marked = select(_marks.c.thread_id).where(_marks.c.thread_id == thread_id)
        return self._connection.execute(marked).first() is not None

    def take(self, thread_id: str) -> bool:
        return _take.execute(self._connection, {"thread": thread_id}) > 0
