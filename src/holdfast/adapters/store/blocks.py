"""Memory blocks. Which agents they are attached to is in ``agents``."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.identity_links import identity_conditions
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.row_mapper import RowMapper, refuse_nul
from holdfast.adapters.store.tag_filter import has_tags
from holdfast.core.blocks import Block, BlockQuery
from holdfast.errors import NotFound

_blocks = tables.blocks
_links = tables.agent_blocks
_tags = tables.block_tags

BLOCK = RowMapper(Block, _blocks)

_paged_list = PagedList(
    "Block",
    _blocks.c.id,
    organization_id=_blocks.c.organization_id,
    orders={
        "created_at": _blocks.c.created_at,
        "updated_at": _blocks.c.updated_at,
    },
    ignores_unknown_cursors=True,
)


_insert = PreparedStatement(insert(_blocks))
_insert_tag = PreparedStatement(insert(_tags))


class SqlBlocks:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, *blocks: Block) -> None:
        rows = [BLOCK.to_row(_without_nul(block)) for block in blocks]
        _insert.execute_many(self._connection, rows)
        self._index_tags(blocks)

    def get(self, organization_id: str, block_id: str) -> Block:
        row = self._connection.execute(
            select(*BLOCK.columns).where(*_has_id(organization_id, block_id))
        ).first()
        if row is None:
            raise _not_found(block_id)
        return BLOCK.from_row(row)

    def find(self, organization_id: str, block_ids: Sequence[str]) -> Sequence[Block]:
        if not block_ids:
            return []
        rows = self._connection.execute(
            select(*BLOCK.columns).where(
                _blocks.c.id.in_(block_ids), _blocks.c.organization_id == organization_id
            )
        )
        found = {block.id: block for block in map(BLOCK.from_row, rows)}
        for block_id in block_ids:
            if block_id not in found:
                raise _not_found(block_id)
        return [found[block_id] for block_id in block_ids]

    def save(self, block: Block) -> None:
        saved = self._connection.execute(
            update(_blocks)
            .where(*_has_id(block.organization_id, block.id))
            .values(BLOCK.to_row(_without_nul(block)))
        )
        if saved.rowcount == 0:
            raise _not_found(block.id)
        self._connection.execute(delete(_tags).where(_tags.c.block_id == block.id))
        self._index_tags([block])

    def delete(self, organization_id: str, block_id: str) -> None:
        deleted = self._connection.execute(
            delete(_blocks).where(*_has_id(organization_id, block_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(block_id)

    def list(self, organization_id: str, query: BlockQuery) -> Sequence[Block]:
        selected = select(*BLOCK.columns).where(*_conditions(query))
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [BLOCK.from_row(row) for row in rows]

    def count(self, organization_id: str, query: BlockQuery) -> int:
        selected = (
            select(func.count())
            .select_from(_blocks)
            .where(_blocks.c.organization_id == organization_id, *_conditions(query))
        )
        return self._connection.execute(selected).scalar_one()

    def holder_ids(self, block_id: str) -> Sequence[str]:
        attached = select(_links.c.agent_id).where(_links.c.block_id == block_id)
        owned = (
            select(tables.threads.c.agent_id)
            .join(_blocks, _blocks.c.thread_id == tables.threads.c.id)
            .where(_blocks.c.id == block_id)
        )
        agent_ids = self._connection.execute(attached.union(owned)).scalars()
        return sorted(agent_ids)

    def thread_blocks(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        found: dict[str, list[Block]] = {thread_id: [] for thread_id in thread_ids}
        rows = self._connection.execute(
            select(*BLOCK.columns)
            .where(_blocks.c.thread_id.in_(list(found)))
            .order_by(_blocks.c.created_at, _blocks.c.id)
        )
        for row in rows:
            block = BLOCK.from_row(row)
            found[block.thread_id or ""].append(block)
        return found

    def _index_tags(self, blocks: Iterable[Block]) -> None:
        rows = [
            {"block_id": block.id, "tag": tag}
            for block in blocks
            for tag in sorted(set(block.tags))
        ]
        for row in rows:
            refuse_nul("tags", row["tag"])
        _insert_tag.execute_many(self._connection, rows)


def _without_nul(block: Block) -> Block:
    """Remove NUL characters from the value (wire-v1 §1.7)."""
    if "\x00" not in block.value:
        return block
    return msgspec.structs.replace(block, value=block.value.replace("\x00", ""))


def _has_id(organization_id: str, block_id: str) -> tuple[ColumnElement[bool], ...]:
    return _blocks.c.id == block_id, _blocks.c.organization_id == organization_id


def _not_found(block_id: str) -> NotFound:
    return NotFound(f"Block with ID {block_id} not found")


def _conditions(query: BlockQuery) -> list[ColumnElement[bool]]:
    exact = {
        _blocks.c.label: query.label,
        _blocks.c.template_name: query.name,
        _blocks.c.project_id: query.project_id,
    }
    searched = {
        _blocks.c.label: query.label_search,
        _blocks.c.description: query.description_search,
        _blocks.c.value: query.value_search,
    }
    conditions = [column == value for column, value in exact.items() if value is not None]
    conditions += [
        column.icontains(text, autoescape=True) for column, text in searched.items() if text
    ]
    if query.tags:
        conditions.append(
            has_tags(_blocks.c.id, _tags.c.block_id, query.tags, every=query.match_all_tags)
        )
    if query.templates_only:
        conditions.append(_blocks.c.is_template.is_(True))
    if query.agent_id is not None:
        conditions.append(
            exists().where(_links.c.block_id == _blocks.c.id, _links.c.agent_id == query.agent_id)
        )
    conditions += identity_conditions(
        _blocks.c.id,
        tables.identities_blocks.c.block_id,
        query.identity_id,
        query.identifier_keys,
    )
    return conditions + _agent_count_conditions(query)


def _agent_count_conditions(query: BlockQuery) -> list[ColumnElement[bool]]:
    holders = (
        select(func.count())
        .select_from(_links)
        .where(_links.c.block_id == _blocks.c.id)
        .scalar_subquery()
    )
    conditions: list[ColumnElement[bool]] = []
    if query.connected_gt is not None:
        conditions.append(holders > query.connected_gt)
    if query.connected_lt is not None:
        conditions.append(holders < query.connected_lt)
    if query.connected_eq is not None:
        conditions.append(holders == query.connected_eq)
    return conditions
