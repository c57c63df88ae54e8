"""Threads. Their messages are in ``messages``."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.lifecycle import FINAL
from holdfast.core.threads import Thread, ThreadQuery
from holdfast.errors import NotFound

_threads = tables.threads
_messages = tables.messages

THREAD = RowMapper(Thread, _threads)

_is_not_deleted = _threads.c.deleted_at.is_(None)
_is_conversation = _threads.c.id != _threads.c.agent_id
_last_run_completion = (
    select(func.max(tables.runs.c.completed_at))
    .where(tables.runs.c.thread_id == _threads.c.id)
    .correlate(_threads)
    .scalar_subquery()
)
_paged_list = PagedList(
    "Conversation",
    _threads.c.id,
    organization_id=_threads.c.organization_id,
    orders={
        "created_at": _threads.c.created_at,
        "last_message_at": _threads.c.last_message_at,
        "last_run_completion": _last_run_completion,
    },
)

_get = PreparedStatement(
    select(*THREAD.columns).where(
        _threads.c.id == bindparam("this_id"),
        _threads.c.organization_id == bindparam("organization"),
        _is_not_deleted,
    )
)
_note_request = (
    update(_threads)
    .where(_threads.c.id == bindparam("this_id"), _is_not_deleted)
    .values(last_message_at=bindparam("now"))
)


class SqlThreads:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, thread: Thread) -> None:
        self._connection.execute(insert(_threads), THREAD.to_row(thread))

    def get(self, organization_id: str, thread_id: str) -> Thread:
        row = _get.fetch_first(
            self._connection, {"this_id": thread_id, "organization": organization_id}
        )
        if row is None:
            raise thread_not_found(thread_id)
        return THREAD.from_row(row)

    def save(self, thread: Thread) -> None:
        saved = self._connection.execute(
            update(_threads)
            .where(
                _threads.c.id == thread.id,
                _threads.c.organization_id == thread.organization_id,
                _is_not_deleted,
            )
            .values(THREAD.to_row(thread))
        )
        if saved.rowcount == 0:
            raise thread_not_found(thread.id)

    def record_request(self, thread_id: str, now: datetime) -> None:
        updated = self._connection.execute(_note_request, {"this_id": thread_id, "now": now})
        if updated.rowcount == 0:
            raise thread_not_found(thread_id)

    def delete(self, organization_id: str, thread_id: str, now: datetime) -> None:
        # First, so that concurrent transactions on the thread wait for this one and then do not find it.
        agent_id = self._connection.execute(
            update(_threads)
            .where(
                _threads.c.id == thread_id,
                _threads.c.organization_id == organization_id,
                _is_conversation,
                _is_not_deleted,
            )
            .values(deleted_at=now)
            .returning(_threads.c.agent_id)
        ).scalar()
        if agent_id is None:
            raise thread_not_found(thread_id)
        for table in (tables.runs, tables.calls, tables.context, tables.shared, tables.blocks):
            self._connection.execute(delete(table).where(table.c.thread_id == thread_id))
        self._delete_unreferenced(agent_id)

    def delete_history(
        self, organization_id: str, agent_id: str, thread_id: str | None, limit: int
    ) -> bool:
        runs, messages = tables.runs, _messages
        shown = exists().where(tables.context.c.message_id == messages.c.id)
        shared = exists().where(tables.shared.c.message_id == messages.c.id)
        over = runs.c.status.in_(sorted(FINAL))
        is_more_left = False
        for key, conditions in ((runs.c.id, (over,)), (messages.c.position, (~shown, ~shared))):
            table = key.table
            some = select(key).where(
                table.c.organization_id == organization_id,
                table.c.agent_id == agent_id,
                *(() if thread_id is None else (table.c.thread_id == thread_id,)),
                *conditions,
            )
            deleted = self._connection.execute(delete(table).where(key.in_(some.limit(limit))))
            is_more_left |= deleted.rowcount == limit
        return is_more_left

    def _delete_unreferenced(self, agent_id: str) -> None:
        """Delete the messages of deleted threads that no fork shares, then the threads without messages."""
        deleted = (_threads.c.agent_id == agent_id, _threads.c.deleted_at.is_not(None))
        self._connection.execute(
            delete(_messages).where(
                _messages.c.thread_id.in_(select(_threads.c.id).where(*deleted)),
                ~exists().where(tables.shared.c.message_id == _messages.c.id),
            )
        )
        self._connection.execute(
            delete(_threads).where(
                *deleted, ~exists().where(_messages.c.thread_id == _threads.c.id)
            )
        )

    def list(self, organization_id: str, query: ThreadQuery) -> Sequence[Thread]:
        selected = select(*THREAD.columns).where(*_conditions(query))
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [THREAD.from_row(row) for row in rows]

    def list_of_agent(self, agent_id: str) -> Sequence[Thread]:
        return self.list_of_agents([agent_id])

    def list_of_agents(self, agent_ids: Collection[str]) -> Sequence[Thread]:
        rows = self._connection.execute(
            select(*THREAD.columns)
            .where(_threads.c.agent_id.in_(agent_ids), _is_not_deleted)
            .order_by(_threads.c.agent_id, _is_conversation, _threads.c.created_at, _threads.c.id)
        )
        return [THREAD.from_row(row) for row in rows]


def _conditions(query: ThreadQuery) -> list[ColumnElement[bool]]:
    conditions = [_is_conversation, _is_not_deleted, _threads.c.hidden.is_not(True)]
    if query.agent_id is not None:
        conditions.append(_threads.c.agent_id == query.agent_id)
    if query.summary_search is not None:
        conditions.append(_threads.c.summary.icontains(query.summary_search, autoescape=True))
    if query.archived is not None:
        is_archived = _threads.c.archived_at.is_not(None)
        conditions.append(is_archived if query.archived else ~is_archived)
    return conditions


def thread_not_found(thread_id: str) -> NotFound:
    return NotFound(f"Conversation with ID {thread_id} not found")
