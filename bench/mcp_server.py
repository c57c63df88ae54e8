"""The smallest MCP server, by the SDK: ``python -m bench.mcp_server``. Its first line is its address.

With ``--handshake`` it speaks only the older generation of the protocol.
"""

import asyncio
import socket
import sys
import time
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_NO_ARGUMENTS = {"type": "object", "properties": {}}
_TOOLS = [
    types.Tool(name=name, input_schema=_NO_ARGUMENTS) for name in ("echo", "wait", "cancelled_at")
]
_VERSION_HEADER = b"mcp-protocol-version"
_MODERN = {version.encode() for version in MODERN_PROTOCOL_VERSIONS}


class _Tools:
    def __init__(self) -> None:
        self._cancelled_at: float | None = None

    async def list(
        self, context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=_TOOLS)

    async def call(
        self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        del context
        text = "ok"
        if params.name == "wait":
            await self._wait()
        elif params.name == "cancelled_at":
            text = repr(self._cancelled_at)
            self._cancelled_at = None
        return types.CallToolResult(content=[types.TextContent(text=text)])

    async def _wait(self) -> None:
        """Until the call is cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            self._cancelled_at = time.perf_counter()


def _refuse_modern(app: ASGIApp) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(_VERSION_HEADER) in _MODERN:
            await Response("Unsupported protocol version", 400)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return refuse


async def _serve(*, only_handshake: bool) -> None:
    tools = _Tools()
    server = Server("bench", version="1", on_list_tools=tools.list, on_call_tool=tools.call)
    app: ASGIApp = server.streamable_http_app()
    # With the protocol named, asyncio turns Nagle's algorithm off.
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(_refuse_modern(app) if only_handshake else app, log_config=None)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(_serve(only_handshake="--handshake" in sys.argv))
