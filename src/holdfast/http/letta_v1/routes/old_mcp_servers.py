"""The deprecated family of MCP servers, by name (tools-v1 §1.10). Each route is another form of one of ``mcp_servers``."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from holdfast.core.agents import Actor
from holdfast.errors import InvalidArgument, McpError
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.mcp_servers import (
    old_mcp_server_changes,
    old_new_mcp_server,
)
from holdfast.http.letta_v1.schemas.mcp_servers import McpRefresh
from holdfast.http.letta_v1.schemas.old_mcp_servers import (
    OldMcpChanges,
    OldMcpServer,
    OldMcpServerState,
    OldMcpTest,
    OldMcpToolResult,
    OldMcpToolRun,
)
from holdfast.http.letta_v1.schemas.tools import Tool
from holdfast.http.letta_v1.to_wire.mcp_servers import (
    live_tools,
    mcp_refresh,
    old_mcp_server_state,
    unavailable_problem,
    unknown_problem,
)
from holdfast.http.letta_v1.to_wire.tools import tool_state
from holdfast.ports.services import Services
from holdfast.usecases import mcp_refresh as refreshing
from holdfast.usecases import mcp_servers, mcp_tools

router = APIRouter(
    prefix="/v1/tools/mcp/servers", tags=["mcp-servers"], route_class=JsonRoute, deprecated=True
)

_Name = Annotated[str, Path(description="The name of the server.")]


@router.get("", responses=describe_response(dict[str, OldMcpServerState]))
async def list_old_mcp_servers(services: ServicesDep, actor: ActorDep) -> Response:
    """All servers by their names."""
    found = await mcp_servers.list_all(services, actor)
    return json_response({server.name: old_mcp_server_state(server) for server in found})


@router.put("", responses=describe_response(list[OldMcpServerState]))
async def add_old_mcp_server(
    body: OldMcpServer, services: ServicesDep, actor: ActorDep
) -> Response:
    """Create a server. The answer has all servers."""
    await mcp_servers.create(services, actor, old_new_mcp_server(body))
    return await _list_response(services, actor)


@router.post("/test", responses=describe_response(OldMcpTest))
async def test_old_mcp_server(
    body: OldMcpServer, services: ServicesDep, actor: ActorDep
) -> Response:
    """List the tools of a server without storing it."""
    listed = await mcp_tools.try_server(services, actor, old_new_mcp_server(body))
    return json_response(OldMcpTest(tools=await asyncio.to_thread(live_tools, listed)))


@router.patch("/{mcp_server_name}", responses=describe_response(OldMcpServerState))
async def modify_old_mcp_server(
    mcp_server_name: _Name, body: OldMcpChanges, services: ServicesDep, actor: ActorDep
) -> Response:
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        return _unknown(mcp_server_name)
    changed = await mcp_servers.update(services, actor, server.id, old_mcp_server_changes(body))
    return json_response(old_mcp_server_state(changed))


@router.delete("/{mcp_server_name}", responses=describe_response(list[OldMcpServerState]))
async def delete_old_mcp_server(
    mcp_server_name: _Name, services: ServicesDep, actor: ActorDep
) -> Response:
    """Delete a server. The answer has those that remain."""
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        return _unknown(mcp_server_name)
    await mcp_servers.delete(services, actor, server.id)
    return await _list_response(services, actor)


@router.get("/{mcp_server_name}/tools", responses=describe_response(list[dict[str, Any]]))
async def list_old_mcp_tools(
    mcp_server_name: _Name, services: ServicesDep, actor: ActorDep
) -> Response:
    """The tools as the server lists them now, each with what is wrong with its schema."""
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        return _unknown(mcp_server_name)
    listed = await mcp_tools.list_live(services, actor, server)
    return json_response(await asyncio.to_thread(live_tools, listed))


@router.post("/{mcp_server_name}/resync", responses=describe_response(McpRefresh))
async def resync_old_mcp_server(
    mcp_server_name: _Name,
    services: ServicesDep,
    actor: ActorDep,
    agent_id: Annotated[
        str | None, Query(description="The agent whose secrets placeholders stand for.")
    ] = None,
) -> Response:
    """Read the server's tools again."""
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        raise InvalidArgument(f"MCP server '{mcp_server_name}' not found")
    try:
        changes = await refreshing.refresh(services, actor, server.id, agent_id)
    except McpError as error:
        return json_response(unavailable_problem(error), 404)
    return json_response(mcp_refresh(changes))


@router.post("/{mcp_server_name}/{mcp_tool_name}", responses=describe_response(Tool))
async def add_old_mcp_tool(
    mcp_server_name: _Name, mcp_tool_name: str, services: ServicesDep, actor: ActorDep
) -> Response:
    """Store one tool of the server, whatever its schema is."""
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        return _unknown(mcp_server_name)
    tool = await refreshing.register(services, actor, server.id, mcp_tool_name)
    return json_response(tool_state(tool))


@router.post(
    "/{mcp_server_name}/tools/{mcp_tool_name}/execute",
    responses=describe_response(OldMcpToolResult),
)
async def execute_old_mcp_tool(
    mcp_server_name: _Name,
    mcp_tool_name: str,
    services: ServicesDep,
    actor: ActorDep,
    body: OldMcpToolRun | None = None,
) -> Response:
    """Run a tool of the server without an agent."""
    server = await mcp_servers.find_by_name(services, actor, mcp_server_name)
    if server is None:
        return _unknown(mcp_server_name)
    arguments = body.args if body else {}
    result = await mcp_tools.run_by_name(services, actor, server, mcp_tool_name, arguments)
    return json_response(OldMcpToolResult(result.text, result.ok))


async def _list_response(services: Services, actor: Actor) -> Response:
    return await list_response(await mcp_servers.list_all(services, actor), old_mcp_server_state)


def _unknown(name: str) -> Response:
    return json_response(unknown_problem(name), 404)
