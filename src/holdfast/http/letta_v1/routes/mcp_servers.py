"""MCP servers and their tools (tools-v1 §1.2)."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from holdfast.errors import McpError
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import (
    describe_empty,
    describe_response,
    empty_response,
    json_response,
    list_response,
)
from holdfast.http.letta_v1.from_wire.mcp_servers import mcp_server_changes, new_mcp_server
from holdfast.http.letta_v1.parameters.ids import McpServerId, ToolId
from holdfast.http.letta_v1.schemas.agents import ToolExecutionResult
from holdfast.http.letta_v1.schemas.mcp_servers import (
    McpRefresh,
    McpServerCreate,
    McpServerState,
    McpServerUpdate,
    McpToolRun,
)
from holdfast.http.letta_v1.schemas.tools import Tool
from holdfast.http.letta_v1.to_wire.mcp_servers import (
    mcp_refresh,
    mcp_server_state,
    mcp_tool_result,
    unavailable_problem,
)
from holdfast.http.letta_v1.to_wire.tools import tool_state
from holdfast.usecases import mcp_refresh as refreshing
from holdfast.usecases import mcp_servers, mcp_tools

router = APIRouter(prefix="/v1/mcp-servers", tags=["mcp-servers"], route_class=JsonRoute)


@router.get("/", responses=describe_response(list[McpServerState]))
async def list_mcp_servers(services: ServicesDep, actor: ActorDep) -> Response:
    """All MCP servers, oldest first. Secrets are masked."""
    return await list_response(await mcp_servers.list_all(services, actor), mcp_server_state)


@router.post("/", responses=describe_response(McpServerState))
async def create_mcp_server(
    body: McpServerCreate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Create an MCP server, and read its tools in. A server that cannot be reached is created all the same, without tools."""
    created = await mcp_servers.create(services, actor, new_mcp_server(body))
    return json_response(mcp_server_state(created))


@router.get("/{mcp_server_id}", responses=describe_response(McpServerState))
async def retrieve_mcp_server(
    mcp_server_id: McpServerId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(
        mcp_server_state(await mcp_servers.retrieve(services, actor, mcp_server_id))
    )


@router.patch("/{mcp_server_id}", responses=describe_response(McpServerState))
async def modify_mcp_server(
    mcp_server_id: McpServerId, body: McpServerUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. Null clears a token, headers or variables; a masked value leaves the stored one."""
    changed = await mcp_servers.update(services, actor, mcp_server_id, mcp_server_changes(body))
    return json_response(mcp_server_state(changed))


@router.delete("/{mcp_server_id}", status_code=204, responses=describe_empty())
async def delete_mcp_server(
    mcp_server_id: McpServerId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Delete the server and its tools."""
    await mcp_servers.delete(services, actor, mcp_server_id)
    return empty_response()


@router.patch("/{mcp_server_id}/refresh", responses=describe_response(McpRefresh))
async def refresh_mcp_server(
    mcp_server_id: McpServerId,
    services: ServicesDep,
    actor: ActorDep,
    agent_id: Annotated[
        str | None, Query(description="The agent whose secrets placeholders stand for.")
    ] = None,
) -> Response:
    """Read the server's tools again."""
    try:
        changes = await refreshing.refresh(services, actor, mcp_server_id, agent_id)
    except McpError as error:
        return json_response(unavailable_problem(error), 404)
    return json_response(mcp_refresh(changes))


@router.get("/{mcp_server_id}/tools", responses=describe_response(list[Tool]))
async def list_mcp_tools(
    mcp_server_id: McpServerId, services: ServicesDep, actor: ActorDep
) -> Response:
    """The tools that were read in, sorted by name."""
    found = await mcp_tools.list_stored(services, actor, mcp_server_id)
    return await list_response(found, tool_state)


@router.get("/{mcp_server_id}/tools/{tool_id}", responses=describe_response(Tool))
async def retrieve_mcp_tool(
    mcp_server_id: McpServerId, tool_id: ToolId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(
        tool_state(await mcp_tools.retrieve(services, actor, mcp_server_id, tool_id))
    )


@router.post(
    "/{mcp_server_id}/tools/{tool_id}/run", responses=describe_response(ToolExecutionResult)
)
async def run_mcp_tool(
    mcp_server_id: McpServerId,
    tool_id: ToolId,
    services: ServicesDep,
    actor: ActorDep,
    body: McpToolRun | None = None,
) -> Response:
    """Run a tool without an agent. A tool that failed is no error of the request: see ``status``."""
    arguments = body.args if body else {}
    result = await mcp_tools.run(services, actor, mcp_server_id, tool_id, arguments)
    return json_response(mcp_tool_result(result))
