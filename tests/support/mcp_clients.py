"""A client of MCP servers for tests, and endpoints of the servers of ``mcp_server``."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.mcp_server import McpTestServer

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.core.messages import Text
from holdfast.ports.clock import Clock
from holdfast.ports.mcp import RemoteResult

LOOPBACK = parse_allowed(["127.0.0.1"])
# Every wait in these tests ends sooner or later; the machine may be slow.
PATIENCE_SECONDS = 60


@asynccontextmanager
async def open_client(
    *,
    allowed: AllowedAddresses = LOOPBACK,
    clock: Clock | None = None,
    lookup: Lookup | None = None,
    patience: float = PATIENCE_SECONDS,
    **options: Any,
) -> AsyncIterator[PooledMcpClient]:
    client = PooledMcpClient(
        ClientOptions(**options), allowed, clock or SystemClock(), lookup=lookup
    )
    try:
        async with asyncio.timeout(patience):
            yield client
    finally:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await client.aclose()


def endpoint_of(server: McpTestServer, **fields: Any) -> Endpoint:
    """``fields``: what differs from a plain one."""
    plain = {
        "server_id": "mcp_server-1",
        "server_name": "weather",
        "transport": Transport(server.transport),
        "url": server.url,
    }
    return Endpoint(**(plain | fields))


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
