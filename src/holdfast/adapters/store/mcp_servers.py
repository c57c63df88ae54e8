"""MCP servers. Their secrets are encrypted by ``cipher``."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, delete, insert, select, update

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.columns import to_json
from holdfast.adapters.store.row_mapper import RowMapper
from holdfast.adapters.store.tools import TOOL
from holdfast.core.mcp_servers import McpSecrets, McpServer
from holdfast.core.tools import Tool
from holdfast.errors import NotFound

_servers = tables.mcp_servers
_tools = tables.tools

SERVER = RowMapper(McpServer, _servers, stored_elsewhere=("secrets",))
_columns = (*SERVER.columns, _servers.c.encrypted_secrets)


class SqlMcpServers:
    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def add(self, server: McpServer) -> None:
        self._connection.execute(insert(_servers), self._to_row(server))

    def get(self, organization_id: str, server_id: str) -> McpServer:
        return self._get(server_id, _select_one(organization_id, server_id))

    def get_for_update(self, organization_id: str, server_id: str) -> McpServer:
        # SQLite has one writer anyway, and its SQL has no FOR UPDATE.
        selected = _select_one(organization_id, server_id).with_for_update(key_share=True)
        return self._get(server_id, selected)

    def find_by_name(self, organization_id: str, name: str) -> McpServer | None:
        row = self._connection.execute(
            select(*_columns).where(
                _servers.c.organization_id == organization_id, _servers.c.name == name
            )
        ).first()
        return None if row is None else self._from_row(row)

    def list(self, organization_id: str) -> Sequence[McpServer]:
        rows = self._connection.execute(
            select(*_columns)
            .where(_servers.c.organization_id == organization_id)
            .order_by(_servers.c.created_at, _servers.c.id)
        )
        return [self._from_row(row) for row in rows]

    def save(self, server: McpServer) -> None:
        saved = self._connection.execute(
            update(_servers)
            .where(*_has_id(server.organization_id, server.id))
            .values(self._to_row(server))
        )
        if saved.rowcount == 0:
            raise _not_found(server.id)

    def delete(self, organization_id: str, server_id: str) -> None:
        deleted = self._connection.execute(
            delete(_servers).where(*_has_id(organization_id, server_id))
        )
        if deleted.rowcount == 0:
            raise _not_found(server_id)

    def tools(self, organization_id: str, server_id: str) -> Sequence[Tool]:
        rows = self._connection.execute(
            select(*TOOL.columns)
            .where(_tools.c.mcp_server_id == server_id, _tools.c.organization_id == organization_id)
            .order_by(_tools.c.name)
        )
        return [TOOL.from_row(row) for row in rows]

    def _get(self, server_id: str, selected: Select[Any]) -> McpServer:
        row = self._connection.execute(selected).first()
        if row is None:
            raise _not_found(server_id)
        return self._from_row(row)

    def _to_row(self, server: McpServer) -> dict[str, Any]:
        encrypted = self._cipher.encrypt(to_json(server.secrets))
        return SERVER.to_row(server) | {"encrypted_secrets": encrypted}

    def _from_row(self, row: Sequence[Any]) -> McpServer:
        secrets = msgspec.json.decode(self._cipher.decrypt(row[-1]), type=McpSecrets)
        return SERVER.from_row(row, secrets=secrets)


def _select_one(organization_id: str, server_id: str) -> Select[Any]:
    return select(*_columns).where(*_has_id(organization_id, server_id))


def _has_id(organization_id: str, server_id: str) -> tuple[ColumnElement[bool], ...]:
    return _servers.c.organization_id == organization_id, _servers.c.id == server_id


def _not_found(server_id: str) -> NotFound:
    return NotFound(f"MCPServer not found with id='{server_id}'")
