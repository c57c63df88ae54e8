"""Tools. Which agents they are attached to is in ``agents``."""

from collections.abc import Collection, Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    type_coerce,
    update,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.paging import PagedList
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.core.tools import Tool, ToolKind, ToolQuery
from holdfast.errors import NotFound

_tools = tables.tools

TOOL = RowMapper(Tool, _tools)
_kind_text = type_coerce(_tools.c.kind, Text)
_BUILTIN_KINDS = tuple(
    kind.value for kind in ToolKind if kind not in (ToolKind.CUSTOM, ToolKind.MCP)
)

_save_many = (
    update(_tools)
    .where(
        _tools.c.id == bindparam("new_id"),
        _tools.c.organization_id == bindparam("new_organization_id"),
    )
    .values({name: bindparam(f"new_{name}") for name in TOOL.mutable_columns})
)

_paged_list = PagedList(
    "Tool",
    _tools.c.id,
    organization_id=_tools.c.organization_id,
    orders={
        "created_at": _tools.c.created_at,
        "updated_at": _tools.c.updated_at,
    },
)


class SqlTools:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, tool: Tool) -> None:
        self._connection.execute(insert(_tools), TOOL.to_row(tool))

    def add_all(self, tools: Sequence[Tool]) -> None:
        if tools:
            self._connection.execute(insert(_tools), [TOOL.to_row(tool) for tool in tools])

    def get(self, organization_id: str, tool_id: str) -> Tool:
        row = self._connection.execute(
            select(*TOOL.columns).where(*_has_id(organization_id, tool_id))
        ).first()
        if row is None:
            raise _not_found(tool_id)
        return TOOL.from_row(row)

    def find(self, organization_id: str, names: Collection[str]) -> Sequence[Tool]:
        rows = self._connection.execute(
            select(*TOOL.columns)
            .where(_tools.c.organization_id == organization_id, _tools.c.name.in_(names))
            .order_by(_tools.c.name)
        )
        return [TOOL.from_row(row) for row in rows]

    def save(self, tool: Tool) -> None:
        saved = self._connection.execute(
            update(_tools).where(*_has_id(tool.organization_id, tool.id)).values(TOOL.to_row(tool))
        )
        if saved.rowcount == 0:
            raise _not_found(tool.id)

    def save_all(self, tools: Sequence[Tool]) -> None:
        if tools:
            rows = [
                {f"new_{name}": value for name, value in TOOL.to_row(tool).items()}
                for tool in tools
            ]
            self._connection.execute(_save_many, rows)

    def delete(self, organization_id: str, tool_id: str) -> None:
        deleted = self._connection.execute(delete(_tools).where(*_has_id(organization_id, tool_id)))
        if deleted.rowcount == 0:
            raise _not_found(tool_id)

    def delete_all(self, organization_id: str, tool_ids: Collection[str]) -> None:
        self._connection.execute(
            delete(_tools).where(
                _tools.c.id.in_(tool_ids), _tools.c.organization_id == organization_id
            )
        )

    def list(self, organization_id: str, query: ToolQuery) -> Sequence[Tool]:
        selected = select(*TOOL.columns).where(*_conditions(query))
        rows = _paged_list.select_page(self._connection, selected, organization_id, query.page)
        return [TOOL.from_row(row) for row in rows]

    def count(self, organization_id: str, query: ToolQuery) -> int:
        selected = (
            select(func.count())
            .select_from(_tools)
            .where(_tools.c.organization_id == organization_id, *_conditions(query))
        )
        return self._connection.execute(selected).scalar_one()


def _has_id(organization_id: str, tool_id: str) -> tuple[ColumnElement[bool], ...]:
    return _tools.c.id == tool_id, _tools.c.organization_id == organization_id


def _not_found(tool_id: str) -> NotFound:
    return NotFound(f"Tool with ID {tool_id} not found")


def _conditions(query: ToolQuery) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if query.name is not None:
        conditions.append(_tools.c.name == query.name)
    if query.names:
        conditions.append(_tools.c.name.in_(query.names))
    if query.tool_ids:
        conditions.append(_tools.c.id.in_(query.tool_ids))
    if query.search:
        conditions.append(_tools.c.name.icontains(query.search, autoescape=True))
    if query.kinds:
        conditions.append(_kind_text.in_(query.kinds))
    if query.excluded_kinds:
        conditions.append(_kind_text.not_in(query.excluded_kinds))
    if query.only_builtin:
        conditions.append(_kind_text.in_(_BUILTIN_KINDS))
    if query.agent_id is not None:
        links = tables.agent_tools
        conditions.append(
            exists().where(links.c.tool_id == _tools.c.id, links.c.agent_id == query.agent_id)
        )
    return conditions
