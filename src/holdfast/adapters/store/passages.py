"""Passages of archives, with their tags and their index of words."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper, refuse_nul
from holdfast.adapters.store.tag_filter import has_tags
from holdfast.adapters.store.vector_bytes import count_vector_bytes
from holdfast.adapters.store.vector_search import VectorSearch
from holdfast.adapters.store.vectors import SqlVectors
from holdfast.adapters.store.word_index import IndexEntry, WordIndex
from holdfast.core.embeddings import EmbeddingProgress, QueryVector
from holdfast.core.paging import Order, Page
from holdfast.core.passages import FoundPassage, Passage, PassageFilter, fingerprint
from holdfast.core.search import MIN_FUSED, fuse_ranks, interleave, literal_text, query_terms
from holdfast.errors import NotFound

_passages = tables.passages
_links = tables.agent_archives
_tags = tables.passage_tags

PASSAGE = RowMapper(Passage, _passages)

_SORT_KEY = (_passages.c.created_at, _passages.c.id)
_paged_list = PagedList(
    "Passage",
    _passages.c.id,
    organization_id=_passages.c.organization_id,
    orders={"created_at": _passages.c.created_at},
)

_INSERTED_COLUMNS = [column.name for column in _passages.c if column is not _passages.c.position]
_insert = PreparedStatement(
    insert(_passages).returning(_passages.c.position), columns=_INSERTED_COLUMNS
)
_insert_tag = PreparedStatement(insert(_tags))
_count = PreparedStatement(
    select(func.count())
    .select_from(_passages)
    .join(_links, _links.c.archive_id == _passages.c.archive_id)
    .where(_links.c.agent_id == bindparam("agent"))
)


class SqlPassages:
    def __init__(
        self,
        connection: Connection,
        index: WordIndex,
        vectors: SqlVectors,
        vector_search: VectorSearch,
    ) -> None:
        self._connection = connection
        self._index = index
        self._vectors = vectors
        self._vector_search = vector_search

    def add(
        self,
        passages: Sequence[Passage],
        *,
        model: str | None = None,
        due_at: datetime | None = None,
    ) -> Sequence[Passage]:
        stored = []
        for passage in map(_without_nul, passages):
            same_text = None if passage.archive_id is None else fingerprint(passage.text)
            row = PASSAGE.to_row(passage) | {"fingerprint": same_text}
            ((position,),) = _insert.fetch_all(self._connection, row)
            stored.append(msgspec.structs.replace(passage, position=position))
        self._add_tags(stored)
        self._index.add(
            [IndexEntry(item.position, (item.container_id,), item.text) for item in stored]
        )
        if model is not None:
            self._vectors.schedule(
                model,
                [(item.position, item.container_id, due_at or item.updated_at) for item in stored],
            )
        return stored

    def get(self, organization_id: str, passage_id: str) -> Passage:
        row = self._connection.execute(
            select(*PASSAGE.columns).where(*_has_id(organization_id, passage_id))
        ).first()
        if row is None:
            raise _not_found(passage_id)
        return PASSAGE.from_row(row)

    def find_same(self, archive_id: str, text: str) -> Passage | None:
        row = self._connection.execute(
            select(*PASSAGE.columns)
            .where(
                _passages.c.archive_id == archive_id,
                _passages.c.fingerprint == fingerprint(text.replace("\x00", "")),
            )
            .order_by(_passages.c.position)
            .limit(1)
        ).first()
        return None if row is None else PASSAGE.from_row(row)

    def delete(self, organization_id: str, passage_id: str) -> None:
        deleted = self._connection.execute(
            delete(_passages).where(*_has_id(organization_id, passage_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(passage_id)

    def delete_matching(
        self, organization_id: str, where: PassageFilter, limit: int | None = None
    ) -> int:
        chosen = select(_passages.c.position).where(*_conditions(organization_id, where))
        return self._connection.execute(
            delete(_passages).where(_passages.c.position.in_(chosen.limit(limit)))
        ).rowcount

    def delete_of_run(self, run_id: str) -> int:
        return self._connection.execute(
            delete(_passages).where(_passages.c.run_id == run_id)
        ).rowcount

    def list(self, organization_id: str, where: PassageFilter, page: Page) -> Sequence[Passage]:
        selected = select(*PASSAGE.columns).where(*_conditions(organization_id, where))
        key = tuple_(*_SORT_KEY)
        if page.after is not None:
            selected = selected.where(key > self._find_cursor(organization_id, page.after))
        if page.before is not None:
            selected = selected.where(key < self._find_cursor(organization_id, page.before))
        # The id too is in the asked order: otherwise a cursor among passages of the same moment would skip some.
        is_descending = page.order is Order.DESC
        order = [part.desc() if is_descending else part.asc() for part in _SORT_KEY]
        rows = self._connection.execute(selected.order_by(*order).limit(max(page.limit, 0)))
        return [PASSAGE.from_row(row) for row in rows]

    def list_page(
        self, organization_id: str, where: PassageFilter, page: Page
    ) -> Sequence[Passage]:
        rows = _paged_list.select_page(
            self._connection,
            select(*PASSAGE.columns).where(*_conditions(organization_id, where)),
            organization_id,
            page,
            has_narrower_condition=where.container_ids is not None,
        )
        return [PASSAGE.from_row(row) for row in rows]

    def search(
        self,
        organization_id: str,
        where: PassageFilter,
        query: str,
        limit: int,
        vectors: Sequence[QueryVector] = (),
    ) -> Sequence[FoundPassage]:
        if where.container_ids == ():
            return []
        # Of each list more than are wanted: what is good in both may be the best of all.
        most = max(limit, MIN_FUSED) if vectors else limit
        by_words = self._find_positions(organization_id, where, query, most)
        by_vector = self._find_near(organization_id, where, vectors, most)
        matches = fuse_ranks(by_words, by_vector)[:limit]
        loaded = self._load([match.position for match in matches])
        return [FoundPassage(loaded[match.position], match) for match in matches]

    def embedding_models(
        self, organization_id: str, where: PassageFilter
    ) -> Mapping[str, Sequence[str]]:
        containers = tables.archives if where.folder_ids is None else tables.folders
        c = containers.c
        found = select(c.embedding, c.id).where(
            c.organization_id == organization_id, c.embedding.is_not(None)
        )
        if where.container_ids is not None:
            found = found.where(c.id.in_(where.container_ids))
        models: dict[str, list[str]] = {}
        for model, container_id in self._connection.execute(found):
            models.setdefault(model, []).append(container_id)
        return models

    def embedding_progress(self, file_id: str) -> EmbeddingProgress:
        return self._vectors.progress(_passages.c.file_id == file_id)

    def count_vector_bytes(self, organization_id: str) -> int:
        return count_vector_bytes(
            self._connection, tables.passage_vectors, _passages, organization_id
        )

    def archive_progress(self, archive_id: str, model: str) -> EmbeddingProgress:
        return self._vectors.progress(_passages.c.archive_id == archive_id, model)

    def list_without_vector(self, archive_id: str, model: str, limit: int) -> Sequence[int]:
        return self._vectors.list_missing(_passages.c.archive_id == archive_id, model, limit)

    def count_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, int]:
        return {
            agent_id: int(next(_count.fetch_all(self._connection, {"agent": agent_id}))[0])
            for agent_id in agent_ids
        }

    def tags_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {agent_id: [] for agent_id in agent_ids}
        rows = self._connection.execute(
            select(_links.c.agent_id, _tags.c.tag)
            .join(_tags, _tags.c.archive_id == _links.c.archive_id)
            .where(_links.c.agent_id.in_(list(found)))
            .distinct()
        )
        for agent_id, tag in rows:
            found[agent_id].append(tag)
        return {agent_id: sorted(tags) for agent_id, tags in found.items()}

    def _find_positions(
        self, organization_id: str, where: PassageFilter, query: str, limit: int
    ) -> Sequence[int]:
        selected = select(_passages.c.position).where(*_conditions(organization_id, where))
        terms = query_terms(query)
        if terms:
            return self._index.find(selected, terms, scopes=where.container_ids, limit=limit)
        contained = _passages.c.text.icontains(literal_text(query), autoescape=True)
        newest = selected.where(contained).order_by(_passages.c.position.desc()).limit(limit)
        return self._connection.execute(newest).scalars().all()

    def _find_near(
        self,
        organization_id: str,
        where: PassageFilter,
        vectors: Sequence[QueryVector],
        limit: int,
    ) -> Sequence[int]:
        if not vectors:
            return []
        selected = select(_passages.c.position).where(*_conditions(organization_id, where))
        models = self.embedding_models(organization_id, where)
        return interleave(
            [
                self._vector_search.find(selected, vector, models.get(vector.model, ()), limit)
                for vector in vectors
            ]
        )[:limit]

    def _load(self, positions: Sequence[int]) -> Mapping[int, Passage]:
        rows = self._connection.execute(
            select(*PASSAGE.columns).where(_passages.c.position.in_(positions))
        )
        return {passage.position: passage for passage in map(PASSAGE.from_row, rows)}

    def _find_cursor(self, organization_id: str, cursor: str) -> ColumnElement[Any]:
        found = self._connection.execute(
            select(*_SORT_KEY).where(*_has_id(organization_id, cursor))
        ).first()
        if found is None:
            raise NotFound(f"No Passage found with id {cursor}")
        values = zip(found, _SORT_KEY, strict=True)
        return tuple_(*(literal(value, part.type) for value, part in values))

    def _add_tags(self, passages: Sequence[Passage]) -> None:
        rows = [
            {"passage_id": item.id, "archive_id": item.archive_id, "tag": tag}
            for item in passages
            for tag in item.tags
        ]
        for row in rows:
            refuse_nul("tags", row["tag"])
        _insert_tag.execute_many(self._connection, rows)


def _without_nul(passage: Passage) -> Passage:
    """Remove NUL characters from the text, which PostgreSQL cannot store."""
    if "\x00" not in passage.text:
        return passage
    return msgspec.structs.replace(passage, text=passage.text.replace("\x00", ""))


def _has_id(organization_id: str, passage_id: str) -> tuple[ColumnElement[bool], ...]:
    return _passages.c.id == passage_id, _passages.c.organization_id == organization_id


def _not_found(passage_id: str) -> NotFound:
    return NotFound(f"Passage with id {passage_id} not found in database.")


def _conditions(organization_id: str, where: PassageFilter) -> list[ColumnElement[bool]]:
    conditions = [_passages.c.organization_id == organization_id]
    if where.folder_ids is not None:
        conditions.append(_passages.c.folder_id.in_(where.folder_ids))
    elif where.archive_ids is not None:
        conditions.append(_passages.c.archive_id.in_(where.archive_ids))
    else:
        conditions.append(_passages.c.archive_id.is_not(None))
    if where.file_id is not None:
        conditions.append(_passages.c.file_id == where.file_id)
    if where.tags:
        conditions.append(_has_tags(where))
    if where.since is not None:
        conditions.append(_passages.c.created_at >= where.since)
    if where.until is not None:
        conditions.append(_passages.c.created_at <= where.until)
    if where.contains:
        conditions.append(_passages.c.text.icontains(where.contains, autoescape=True))
    return conditions


def _has_tags(where: PassageFilter) -> ColumnElement[bool]:
    # The index of the tags begins with the archive.
    return has_tags(
        _passages.c.id,
        _tags.c.passage_id,
        where.tags,
        every=where.match_all_tags,
        among=None if where.archive_ids is None else _tags.c.archive_id.in_(where.archive_ids),
    )
