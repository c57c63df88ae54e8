"""The smallest MCP server with one tool, by the SDK: ``python -m bench.mcp_server``. Its first line is its address."""

import asyncio
import socket
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

_TOOL = types.Tool(name="echo", input_schema={"type": "object", "properties": {}})


async def _list_tools(
    context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    del context, params
    return types.ListToolsResult(tools=[_TOOL])


async def _call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    del context, params
    return types.CallToolResult(content=[types.TextContent(text="ok")])


async def _serve() -> None:
    server = Server("bench", version="1", on_list_tools=_list_tools, on_call_tool=_call_tool)
    # With the protocol named, asyncio turns Nagle's algorithm off.
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_config=None)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(_serve())
