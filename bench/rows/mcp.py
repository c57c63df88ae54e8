"""What a trivial call of a tool of an MCP server costs over HTTP, on a warm connection, beyond the server's own time; and
the memory of the SDK.

The floor sends the same message by raw HTTP on an open connection.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from mcp_types.version import LATEST_MODERN_VERSION

from bench import processes
from bench.client import Client, RequestFailed
from bench.context import BenchContext
from bench.floor import median_ms
from bench.measurements import Measurement
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.core.addresses import parse_allowed
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.core.messages import Text

BUDGET_MS = 5

_ACCEPT = "accept: application/json, text/event-stream\r\n"
_META = "io.modelcontextprotocol"
# Prints the resident memory in bytes before and after the SDK is imported.
_MEMORY = """
import psutil
import holdfast.assembly.server
process = psutil.Process()
print(process.memory_info().rss)
import holdfast.adapters.mcp.opening
print(process.memory_info().rss)
"""


def _open_program(endpoint: Endpoint) -> NoReturn:
    raise NotImplementedError(f"{endpoint.server_name} is reached over HTTP.")


async def measure(context: BenchContext) -> list[Measurement]:
    with _mcp_server() as running:
        call, cpu = await _call_ms(running.address, context.counts.turns)
        raw = await _raw_ms(running.address, context.counts.turns)
    before, after = _memory_mb()
    return [
        Measurement(what="a trivial MCP call over HTTP, warm", unit="ms", value=call, floor=raw),
        Measurement(
            what="  added to the server's own time", unit="ms", value=call - raw, budget=BUDGET_MS
        ),
        Measurement(what="  CPU of it in the client", unit="ms", value=cpu),
        Measurement(what="memory without MCP, all of the server imported", unit="MB", value=before),
        Measurement(what="  with MCP", unit="MB", value=after),
    ]


@contextmanager
def _mcp_server() -> Iterator[processes.RunningProcess]:
    with processes.start_process([sys.executable, "-m", "bench.mcp_server"]) as running:
        yield running


async def _call_ms(address: str, count: int) -> tuple[float, float]:
    """The elapsed time and the CPU time of one call."""
    client = PooledMcpClient(
        ClientOptions(), parse_allowed(["127.0.0.1"]), SystemClock(), open_stdio=_open_program
    )
    endpoint = Endpoint(
        server_id="bench",
        server_name="bench",
        transport=Transport.STREAMABLE_HTTP,
        url=f"{address}/mcp",
    )
    try:
        result = await client.call(endpoint, "echo", {})
        if result.content != (Text("ok"),):
            raise RequestFailed(f"The call returned {result}")
        call = partial(client.call, endpoint, "echo", {})
        elapsed = await median_ms(call, count)
        before = time.process_time()
        for _ in range(count):
            await call()
        return elapsed, (time.process_time() - before) * 1000 / count
    finally:
        await client.aclose()


async def _raw_ms(address: str, count: int) -> float:
    async with processes.open_client(address) as client:
        client.headers = (
            f"{_ACCEPT}mcp-protocol-version: {LATEST_MODERN_VERSION}\r\n"
            "mcp-method: tools/call\r\nmcp-name: echo\r\n"
        )
        return await median_ms(partial(_send, client), count)


async def _send(client: Client) -> None:
    await client.post("/mcp", _message())


def _message() -> dict[str, Any]:
    meta = {
        f"{_META}/protocolVersion": LATEST_MODERN_VERSION,
        f"{_META}/clientInfo": {"name": "bench", "version": "1"},
        f"{_META}/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _memory_mb() -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, check=True, text=True, timeout=60
    )
    before, after = (int(line) / 1_000_000 for line in done.stdout.split())
    return before, after
