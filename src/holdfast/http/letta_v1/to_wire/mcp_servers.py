"""MCP servers as V1 shows them (tools-v1 §1.1, §1.6, §1.10). Secrets are masked."""

from collections.abc import Sequence
from typing import Any

from holdfast.core import mcp_servers, mcp_tools
from holdfast.core.mcp_servers import RemoteTool, Transport
from holdfast.core.mcp_tools import ToolChanges
from holdfast.core.tool_source.schema import bounds_fault
from holdfast.errors import McpError
from holdfast.http.letta_v1.schemas.agents import ToolExecutionResult
from holdfast.http.letta_v1.schemas.errors import McpProblem, McpProblemDetail
from holdfast.http.letta_v1.schemas.mcp_servers import (
    McpRefresh,
    McpServerState,
    McpSseServer,
    McpStdioServer,
    McpStreamableHttpServer,
    SkippedTool,
)
from holdfast.http.letta_v1.schemas.old_mcp_servers import (
    McpToolHealth,
    OldMcpServerState,
    OldMcpSseState,
    OldMcpStdioState,
    OldMcpStreamableHttpState,
)
from holdfast.usecases.mcp_forms import show_secrets
from holdfast.usecases.mcp_tools import McpToolRun


def mcp_server_state(server: mcp_servers.McpServer) -> McpServerState:
    secrets = show_secrets(server)
    if server.transport is Transport.STDIO:
        return McpStdioServer(
            id=server.id,
            server_name=server.name,
            command=server.command or "",
            args=server.args,
            env=secrets.env,
            is_configured=server.is_configured,
        )
    kind = McpSseServer if server.transport is Transport.SSE else McpStreamableHttpServer
    return kind(
        id=server.id,
        server_name=server.name,
        server_url=server.server_url or "",
        auth_header=secrets.auth_header,
        auth_token=secrets.auth_token,
        custom_headers=secrets.custom_headers,
        is_configured=server.is_configured,
    )


def old_mcp_server_state(server: mcp_servers.McpServer) -> OldMcpServerState:
    secrets = show_secrets(server)
    if server.transport is Transport.STDIO:
        return OldMcpStdioState(
            server_name=server.name, command=server.command or "", args=server.args, env=secrets.env
        )
    kind = OldMcpSseState if server.transport is Transport.SSE else OldMcpStreamableHttpState
    return kind(
        server_name=server.name,
        server_url=server.server_url or "",
        auth_header=secrets.auth_header,
        auth_token=secrets.auth_token,
        custom_headers=secrets.custom_headers,
    )


def mcp_refresh(changes: ToolChanges) -> McpRefresh:
    made = McpRefresh(
        deleted=mcp_tools.sort_names(changes.deleted),
        updated=mcp_tools.sort_names(changes.updated),
        added=mcp_tools.sort_names(changes.added),
    )
    if not changes.skipped:
        return made
    return McpRefresh(
        deleted=made.deleted,
        updated=made.updated,
        added=made.added,
        skipped=[SkippedTool(skipped.name, skipped.reason) for skipped in changes.skipped],
    )


def mcp_tool_result(result: McpToolRun) -> ToolExecutionResult:
    return ToolExecutionResult(
        status="success" if result.ok else "error",
        func_return=result.text,
        stdout=None,
        stderr=None,
    )


def live_tools(listed: Sequence[RemoteTool]) -> list[dict[str, Any]]:
    """The tools as their server lists them, each with what is wrong with its schema."""
    return [_live_tool(remote) for remote in listed]


def unavailable_problem(error: McpError) -> McpProblem:
    return McpProblem(
        detail=McpProblemDetail(
            code="MCPServerUnavailable",
            message=f"Could not connect to MCP server {error.server} to resync tools",
            error=str(error),
        )
    )


def unknown_problem(name: str) -> McpProblem:
    return McpProblem(
        detail=McpProblemDetail(
            code="MCPServerNotFoundError",
            message=f"MCP server {name} not found",
            mcp_server_name=name,
        )
    )


def _live_tool(remote: RemoteTool) -> dict[str, Any]:
    checked = mcp_tools.check_tool(remote)
    # A server may list what is no JSON for others, or is very large.
    is_plain = bounds_fault(remote.listing) is None
    shown = remote.listing if is_plain else {"name": mcp_tools.quote_name(remote.name)}
    health = McpToolHealth(checked.health, list(checked.reasons))
    return {**shown, "health": health}
