"""The tools of an MCP server: list, retrieve, run without an agent, and what a server lists that is not stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.mcp_servers import McpServer, RemoteTool
from holdfast.core.mcp_tools import EMPTY_RESPONSE
from holdfast.core.messages import Image, Text, VisiblePart
from holdfast.core.tools import HEARTBEAT, Tool, truncate_output
from holdfast.errors import McpCallLost, NotFound
from holdfast.ports.mcp import RemoteResult
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_endpoints
from holdfast.usecases.mcp_endpoints import McpCaller
from holdfast.usecases.mcp_forms import McpServerForm
from holdfast.usecases.mcp_servers import build_server


class McpToolRun(Struct, frozen=True):
    """What a tool returned, as one text."""

    ok: bool
    text: str


async def list_stored(services: Services, actor: Actor, server_id: str) -> Sequence[Tool]:
    def work(tx: Transaction) -> Sequence[Tool]:
        tx.mcp_servers.get(actor.organization_id, server_id)
        return tx.mcp_servers.tools(actor.organization_id, server_id)

    return await services.store.read(work)


async def retrieve(services: Services, actor: Actor, server_id: str, tool_id: str) -> Tool:
    _, tool = await services.store.read(lambda tx: _load(tx, actor, server_id, tool_id))
    return tool


async def run(
    services: Services,
    actor: Actor,
    server_id: str,
    tool_id: str,
    arguments: Mapping[str, Any],
) -> McpToolRun:
    """Run a tool without an agent, so without secrets: placeholders without a default stay as they are."""
    server, tool = await services.store.read(lambda tx: _load(tx, actor, server_id, tool_id))
    returned = await _call(services, actor, server, tool.name, arguments)
    return McpToolRun(returned.ok, truncate_output(returned.text, tool.return_char_limit))


async def run_by_name(
    services: Services, actor: Actor, server: McpServer, name: str, arguments: Mapping[str, Any]
) -> McpToolRun:
    """Run a tool of the server whether it is stored or not."""
    return await _call(services, actor, server, name, arguments)


async def list_live(services: Services, actor: Actor, server: McpServer) -> Sequence[RemoteTool]:
    """The tools that the server lists now."""
    return await mcp_endpoints.use(services, server, _caller(actor), services.mcp.list_tools)


async def try_server(services: Services, actor: Actor, form: McpServerForm) -> Sequence[RemoteTool]:
    """The tools of a server that is not stored."""
    server = build_server(services, actor, form)
    try:
        return await list_live(services, actor, server)
    finally:
        await services.mcp.forget(server.id)


def render_content(content: Sequence[VisiblePart]) -> str:
    """The text of a result, for callers that take nothing else."""
    parts = []
    for part in content:
        match part:
            case Text():
                parts.append(part.text)
            case Image():
                size = len(part.data.rstrip("=")) * 3 // 4
                parts.append(f"[image {part.media_type}, {size} bytes]")
    return " ".join(parts) if parts else EMPTY_RESPONSE


def _load(tx: Transaction, actor: Actor, server_id: str, tool_id: str) -> tuple[McpServer, Tool]:
    server = tx.mcp_servers.get(actor.organization_id, server_id)
    try:
        tool = tx.tools.get(actor.organization_id, tool_id)
    except NotFound:
        tool = None
    if tool is None or tool.mcp_server_id != server.id:
        raise NotFound(f"Tool not found with id='{tool_id}'")
    return server, tool


async def _call(
    services: Services, actor: Actor, server: McpServer, name: str, arguments: Mapping[str, Any]
) -> McpToolRun:
    sent = {key: value for key, value in arguments.items() if key != HEARTBEAT}
    try:
        result: RemoteResult = await mcp_endpoints.use(
            services,
            server,
            _caller(actor),
            lambda endpoint: services.mcp.call(endpoint, name, sent),
        )
    except McpCallLost as error:
        return McpToolRun(False, str(error))
    return McpToolRun(not result.is_error, render_content(result.content))


def _caller(actor: Actor) -> McpCaller:
    return McpCaller(organization_id=actor.organization_id, user_id=actor.user_id)
