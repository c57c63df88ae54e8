"""A client of MCP servers for tests, and endpoints of the servers of ``mcp_server``."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.support.mcp_server import McpTestServer

from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.adapters.mcp.suspension import read_suspended_seconds
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.mcp_headers import merge_headers
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.core.messages import Text
from holdfast.ports.mcp import RemoteResult

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from holdfast.adapters.mcp.session import OpenStdio

LOOPBACK = parse_allowed(["127.0.0.1"])
# Every wait in these tests ends sooner or later; the machine may be slow.
PATIENCE_SECONDS = 60


@asynccontextmanager
async def open_client(
    *,
    allowed: AllowedAddresses = LOOPBACK,
    lookup: Lookup | None = None,
    read_suspended_seconds: Callable[[], float] = read_suspended_seconds,
    open_stdio: "OpenStdio | None" = None,
    patience: float = PATIENCE_SECONDS,
    **options: Any,
) -> AsyncIterator[PooledMcpClient]:
    client = PooledMcpClient(
        ClientOptions(**options),
        allowed,
        lookup=lookup,
        open_stdio=open_stdio or open_sdk_stdio,
        read_suspended_seconds=read_suspended_seconds,
    )
    try:
        async with asyncio.timeout(patience):
            yield client
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await client.aclose()


def open_sdk_stdio(endpoint: Endpoint) -> AbstractAsyncContextManager["TransportStreams"]:
    """Without the limits that programs have in a server."""
    return stdio_client(
        StdioServerParameters(
            command=endpoint.command or "", args=list(endpoint.args), env=dict(endpoint.env)
        )
    )


def endpoint_of(server: McpTestServer, **fields: Any) -> Endpoint:
    """``fields``: what differs from a plain one."""
    plain: dict[str, Any] = {
        "server_id": "mcp_server-1",
        "server_name": "weather",
        "transport": Transport(server.transport),
        "url": server.url,
    }
    headers = merge_headers(dict(fields.get("headers", ())), (), fields.get("agent_id"))
    return Endpoint(**(plain | fields | {"headers": headers}))


def stdio_endpoint(folder: Path, *arguments: str, **fields: Any) -> Endpoint:
    return Endpoint(
        server_id="mcp_server-2",
        server_name="process",
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-m", "tests.support.mcp_stdio_server", "--folder", str(folder), *arguments),
        env=(("PYTHONPATH", str(Path.cwd())), ("PATH", os.environ["PATH"])),
        **fields,
    )


def read_text(result: RemoteResult) -> str:
    (part,) = result.content
    assert isinstance(part, Text)
    return part.text


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def mcp_tasks() -> list[str]:
    """The tasks of this loop that work for MCP connections."""
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
