"""Messages and the contexts that show them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.sql import ColumnElement

from holdfast.adapters.store import tables
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.adapters.store.threads import thread_not_found
from holdfast.adapters.store.vector_bytes import count_vector_bytes
from holdfast.adapters.store.vector_search import VectorSearch
from holdfast.adapters.store.vectors import SqlVectors
from holdfast.adapters.store.word_index import IndexEntry, WordIndex
from holdfast.core.embeddings import QueryVector
from holdfast.core.message_search import FoundMessage, MessageFilter, searchable_text
from holdfast.core.messages import Message, Role
from holdfast.core.paging import Order, Page
from holdfast.core.search import MIN_FUSED, Match, fuse_ranks, literal_text, query_terms
from holdfast.errors import NotFound

_messages = tables.messages
_context = tables.context
_shared = tables.shared

MESSAGE = RowMapper(Message, _messages)
# Up to so many messages are inserted one by one; more are inserted at once and their positions read afterwards.
_FEW_MESSAGES = 4
# How many rows of a search are fetched at once: most searches end within the first few.
_SEARCH_CHUNK = 100

_select_organization = PreparedStatement(
    select(tables.threads.c.organization_id).where(tables.threads.c.id == bindparam("thread"))
)
# Prevents that the thread is deleted before this transaction ends.
_lock_thread = (
    select(tables.threads.c.id)
    .where(tables.threads.c.id == bindparam("thread"), tables.threads.c.deleted_at.is_(None))
    .with_for_update(read=True)
)
_INSERTED_COLUMNS = [column.name for column in _messages.c if column is not _messages.c.position]
_insert = PreparedStatement(
    insert(_messages).returning(_messages.c.position), columns=_INSERTED_COLUMNS
)
_insert_many = PreparedStatement(insert(_messages), columns=_INSERTED_COLUMNS)
_rewrite = PreparedStatement(
    update(_messages).where(_messages.c.id == bindparam("this_id")), columns=("body",)
)
_insert_into_context = PreparedStatement(insert(_context))
_insert_shared = PreparedStatement(insert(_shared))
_delete_from_context = PreparedStatement(
    delete(_context).where(
        _context.c.thread_id == bindparam("thread"), _context.c.message_id == bindparam("message")
    )
)
_select_places = (
    select(_context.c.place, _context.c.message_id)
    .where(_context.c.thread_id == bindparam("thread"))
    .order_by(_context.c.place)
)
_select_context = PreparedStatement(
    select(*MESSAGE.columns)
    .join(_context, _context.c.message_id == _messages.c.id)
    .where(_context.c.thread_id == bindparam("thread"))
    .order_by(_context.c.place)
)
_select_context_ids = (
    select(_context.c.thread_id, _context.c.message_id)
    .where(_context.c.thread_id.in_(bindparam("threads", expanding=True)))
    .order_by(_context.c.thread_id, _context.c.place)
)
_first = (
    select(_context.c.thread_id, func.min(_context.c.place).label("place"))
    .where(_context.c.thread_id.in_(bindparam("threads", expanding=True)))
    .group_by(_context.c.thread_id)
    .subquery()
)
_select_heads = (
    select(*MESSAGE.columns)
    .join(_context, _context.c.message_id == _messages.c.id)
    .join(
        _first, and_(_first.c.thread_id == _context.c.thread_id, _first.c.place == _context.c.place)
    )
)


class SqlMessages:
    def __init__(
        self,
        connection: Connection,
        index: WordIndex,
        vectors: SqlVectors,
        vector_search: VectorSearch,
        *,
        embedding: str | None,
    ) -> None:
        self._connection = connection
        self._index = index
        self._vectors = vectors
        self._vector_search = vector_search
        self._embedding = embedding

    def append(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not messages:
            return []
        owners = {
            thread: self._organization_id(thread) for thread in {m.thread_id for m in messages}
        }
        rows = [
            MESSAGE.to_row(message) | {"organization_id": owners[message.thread_id]}
            for message in messages
        ]
        stored = [
            msgspec.structs.replace(message, position=position)
            for message, position in zip(messages, self._insert_rows(rows), strict=True)
        ]
        shown = [
            {"thread_id": message.thread_id, "place": message.position, "message_id": message.id}
            for message in stored
        ]
        _insert_into_context.execute_many(self._connection, shown)
        self._add_to_index(stored)
        return stored

    def rewrite(self, message: Message) -> None:
        changed = {"this_id": message.id, "body": MESSAGE.to_row(message)["body"]}
        if _rewrite.execute(self._connection, changed) == 0:
            raise _not_found(message.id)

    def get(self, organization_id: str, message_id: str) -> Message:
        row = self._connection.execute(
            select(*MESSAGE.columns).where(
                _messages.c.id == message_id, _messages.c.organization_id == organization_id
            )
        ).first()
        if row is None:
            raise _not_found(message_id)
        return MESSAGE.from_row(row)

    def find(self, organization_id: str, message_ids: Sequence[str]) -> Sequence[Message]:
        rows = self._connection.execute(
            select(*MESSAGE.columns).where(
                _messages.c.id.in_(message_ids), _messages.c.organization_id == organization_id
            )
        )
        found = {message.id: message for message in map(MESSAGE.from_row, rows)}
        for message_id in message_ids:
            if message_id not in found:
                raise _not_found(message_id)
        return [found[message_id] for message_id in message_ids]

    def context(self, thread_id: str) -> Sequence[Message]:
        rows = _select_context.fetch_all(self._connection, {"thread": thread_id})
        return [MESSAGE.from_row(row) for row in rows]

    def context_ids(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {thread_id: [] for thread_id in thread_ids}
        for thread_id, message_id in self._connection.execute(
            _select_context_ids, {"threads": list(found)}
        ).all():
            found[thread_id].append(message_id)
        return found

    def context_heads(self, thread_ids: Collection[str]) -> Sequence[Message]:
        rows = self._connection.execute(_select_heads, {"threads": list(thread_ids)})
        return [MESSAGE.from_row(row) for row in rows]

    def set_context(self, thread_id: str, message_ids: Sequence[str]) -> None:
        self._connection.execute(delete(_context).where(_context.c.thread_id == thread_id))
        # Places start at 0 here. Messages that are appended later use their position as place, which is always higher:
        # at least as many positions were assigned as there are messages in the context.
        rows = [
            {"thread_id": thread_id, "place": place, "message_id": message_id}
            for place, message_id in enumerate(message_ids)
        ]
        _insert_into_context.execute_many(self._connection, rows)

    def replace_in_context(self, message: Message, message_ids: Sequence[str]) -> Message:
        thread_id = message.thread_id
        row = MESSAGE.to_row(message) | {"organization_id": self._organization_id(thread_id)}
        (position,) = self._insert_rows([row])
        stored = msgspec.structs.replace(message, position=position)
        self._add_to_index([stored])
        places = self._remove_from_context(thread_id, set(message_ids))
        if places:
            shown = {"thread_id": thread_id, "place": max(places), "message_id": stored.id}
            _insert_into_context.execute_many(self._connection, [shown])
        return stored

    def hide(self, thread_id: str, message_ids: Sequence[str]) -> None:
        # Deleted by id, so that two transactions that hide messages at the same time do not undo each other.
        rows = [{"thread": thread_id, "message": message_id} for message_id in message_ids]
        _delete_from_context.execute_many(self._connection, rows)

    def share(self, source_id: str, thread_id: str, message_ids: Sequence[str]) -> None:
        if self._connection.execute(_lock_thread, {"thread": source_id}).first() is None:
            raise thread_not_found(source_id)
        rows = [{"thread_id": thread_id, "message_id": message_id} for message_id in message_ids]
        _insert_shared.execute_many(self._connection, rows)

    def list(
        self,
        organization_id: str,
        page: Page,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
    ) -> Sequence[Message]:
        exact = {
            _messages.c.agent_id: agent_id,
            _messages.c.run_id: run_id,
            _messages.c.step_id: step_id,
        }
        position = _messages.c.position
        query = select(*MESSAGE.columns).where(
            _messages.c.organization_id == organization_id,
            *(column == value for column, value in exact.items() if value is not None),
        )
        if thread_id is not None:
            query = query.where(self._in_history(thread_id))
        if page.after is not None:
            query = query.where(position > self._position(organization_id, page.after))
        if page.before is not None:
            query = query.where(position < self._position(organization_id, page.before))
        order = position.desc() if page.order is Order.DESC else position.asc()
        rows = self._connection.execute(query.order_by(order).limit(max(page.limit, 0))).all()
        return [MESSAGE.from_row(row) for row in rows]

    def list_approval_messages(self, step_ids: Collection[str]) -> Sequence[Message]:
        selected = (
            select(*MESSAGE.columns)
            .where(_messages.c.step_id.in_(step_ids), _messages.c.role == Role.APPROVAL)
            .order_by(_messages.c.position)
        )
        return [MESSAGE.from_row(row) for row in self._connection.execute(selected)]

    def count(self, agent_id: str, thread_id: str | None = None) -> int:
        query = select(func.count()).where(_messages.c.agent_id == agent_id)
        if thread_id is not None:
            query = query.where(_messages.c.thread_id == thread_id)
        return self._connection.execute(query).scalar_one()

    def count_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, int]:
        rows = self._connection.execute(
            select(_messages.c.agent_id, func.count())
            .where(_messages.c.agent_id.in_(agent_ids))
            .group_by(_messages.c.agent_id)
        )
        return {row[0]: row[1] for row in rows}

    def count_vector_bytes(self, organization_id: str) -> int:
        return count_vector_bytes(
            self._connection, tables.message_vectors, _messages, organization_id
        )

    def search(
        self,
        organization_id: str,
        where: MessageFilter,
        query: str,
        limit: int,
        vector: QueryVector | None = None,
        *,
        by_words: bool = True,
    ) -> Sequence[FoundMessage]:
        conditions = [_messages.c.organization_id == organization_id, *_conditions(where)]
        if where.thread_id is not None:
            conditions.append(self._in_history(where.thread_id))
        terms = query_terms(query)
        if not terms and vector is None:
            return self._find_containing(conditions, literal_text(query), limit)
        selected = select(_messages.c.position).where(*conditions)
        most = limit if vector is None else max(limit, MIN_FUSED)
        worded: Sequence[int] = ()
        if by_words and terms:
            scopes = self._choose_scopes(where)
            worded = self._index.find(selected, terms, scopes=scopes, limit=most)
        near: Sequence[int] = ()
        if vector is not None:
            containers = self._find_agents(organization_id, where)
            near = self._vector_search.find(selected, vector, containers, most)
        matches = fuse_ranks(worded, near)[:limit]
        rows = self._connection.execute(
            select(*MESSAGE.columns).where(
                _messages.c.position.in_([match.position for match in matches])
            )
        )
        loaded = {message.position: message for message in map(MESSAGE.from_row, rows)}
        return [FoundMessage(loaded[match.position], match) for match in matches]

    def _find_agents(self, organization_id: str, where: MessageFilter) -> Sequence[str]:
        """The agents whose messages are searched: the containers of their vectors."""
        if where.agent_id is not None:
            return [where.agent_id]
        if where.thread_id is not None:
            chosen = select(tables.threads.c.agent_id).where(tables.threads.c.id == where.thread_id)
        else:
            chosen = select(tables.agents.c.id).where(
                tables.agents.c.organization_id == organization_id
            )
        return self._connection.execute(chosen).scalars().all()

    def _find_containing(
        self, conditions: Sequence[ColumnElement[bool]], text: str, limit: int
    ) -> Sequence[FoundMessage]:
        """The newest messages that contain the text, which has no words. All of them, if it is empty."""
        query = (
            select(*MESSAGE.columns)
            .where(*conditions, _may_contain(text))
            .order_by(_messages.c.position.desc())
        )
        found = (
            message
            for message in self._stream(query)
            if (said := searchable_text(message)) and text in said
        )
        newest = {message.position: message for message in islice(found, limit)}
        matches = fuse_ranks([*newest]) if text else [Match(position, 0.0) for position in newest]
        return [FoundMessage(newest[match.position], match) for match in matches]

    def _choose_scopes(self, where: MessageFilter) -> Sequence[str] | None:
        """The part of the index that is searched. A fork also has messages of other threads."""
        if where.thread_id is not None and not self._is_fork(where.thread_id):
            return [where.thread_id]
        return None if where.agent_id is None else [where.agent_id]

    def _add_to_index(self, stored: Sequence[Message]) -> None:
        found = [(message, text) for message in stored if (text := searchable_text(message))]
        self._index.add(
            [
                IndexEntry(message.position, (message.agent_id, message.thread_id), text)
                for message, text in found
            ]
        )
        if self._embedding is not None:
            due = [(item.position, item.agent_id, item.created_at) for item, _ in found]
            self._vectors.schedule(self._embedding, due)

    def _stream(self, query: Select[tuple[object, ...]]) -> Iterator[Message]:
        with self._connection.execute(query.execution_options(yield_per=_SEARCH_CHUNK)) as rows:
            for row in rows:
                yield MESSAGE.from_row(row)

    def _in_history(self, thread_id: str) -> ColumnElement[bool]:
        own = _messages.c.thread_id == thread_id
        # Few threads are forks, and the condition is expensive.
        if not self._is_fork(thread_id):
            return own
        return or_(own, _messages.c.id.in_(_select_shared(thread_id)))

    def _is_fork(self, thread_id: str) -> bool:
        return self._connection.execute(_select_shared(thread_id).limit(1)).first() is not None

    def _organization_id(self, thread_id: str) -> str:
        found = _select_organization.fetch_first(self._connection, {"thread": thread_id})
        if found is None:
            raise thread_not_found(thread_id)
        return str(found[0])

    def _insert_rows(self, rows: Sequence[Mapping[str, object]]) -> Sequence[int]:
        """Insert the rows in this order and return their positions."""
        if len(rows) <= _FEW_MESSAGES:
            return [
                position for row in rows for (position,) in _insert.fetch_all(self._connection, row)
            ]
        _insert_many.execute_many(self._connection, rows)
        ids = [row["id"] for row in rows]
        inserted = select(_messages.c.position).where(_messages.c.id.in_(ids))
        # Positions grow in the order of the rows.
        return self._connection.execute(inserted.order_by(_messages.c.position)).scalars().all()

    def _remove_from_context(self, thread_id: str, message_ids: set[str]) -> Sequence[int]:
        """Remove these neighbours from the context and return their places. A message that another transaction hides at the
        same time is not among them."""
        shown = self._connection.execute(_select_places, {"thread": thread_id}).all()
        places = [place for place, message_id in shown if message_id in message_ids]
        if not places:
            return []
        between = (
            _context.c.thread_id == thread_id,
            _context.c.place.between(places[0], places[-1]),
        )
        taken = delete(_context).where(*between).returning(_context.c.place)
        return self._connection.execute(taken).scalars().all()

    def _position(self, organization_id: str, cursor: str) -> int:
        found = self._connection.execute(
            select(_messages.c.position).where(
                _messages.c.id == cursor, _messages.c.organization_id == organization_id
            )
        ).scalar()
        if found is None:
            raise NotFound(f"No Message found with id {cursor}")
        return int(found)


def _select_shared(thread_id: str) -> Select[tuple[str]]:
    return select(_shared.c.message_id).where(_shared.c.thread_id == thread_id)


def _conditions(where: MessageFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_messages.c.role.in_(where.roles)]
    if where.agent_id is not None:
        conditions.append(_messages.c.agent_id == where.agent_id)
    if where.since is not None:
        conditions.append(_messages.c.created_at >= where.since)
    if where.until is not None:
        conditions.append(_messages.c.created_at <= where.until)
    return conditions


def _may_contain(text: str) -> ColumnElement[bool]:
    """Return a condition that is true of every message with the text, and of few others: JSON keeps the order of
    characters, so the text as JSON is part of the body as JSON."""
    return _messages.c.body.icontains(to_json(text)[1:-1], autoescape=True)


def _not_found(message_id: str) -> NotFound:
    return NotFound(f"Message with ID {message_id} not found")
