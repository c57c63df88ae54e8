"""What a trivial call of a tool of an MCP server costs over HTTP, on a warm connection, beyond the server's own time; how
soon the server learns that a call was cancelled; and the memory of the SDK.

The floor of a call sends the same message by raw HTTP on an open connection.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, NoReturn

from mcp_types.version import LATEST_MODERN_VERSION

from bench import processes
from bench.client import Client, RequestFailed
from bench.context import BenchContext
from bench.floor import median_ms
from bench.measurements import Measurement, median, percentile_95
from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.core.addresses import parse_allowed
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.core.messages import Text

BUDGET_MS = 5
CANCEL_BUDGET_MS = 50

_CANCELS = 30
# How long to wait until a call has certainly arrived, and for the note of its cancellation.
_ARRIVAL_SECONDS = 0.05
_NOTE_SECONDS = 5.0
_POLL_SECONDS = 0.002

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
        by_stream = await _cancel_ms(running.address)
    with _mcp_server("--handshake") as running:
        by_notification = await _cancel_ms(running.address)
    before, after = _memory_mb()
    return [
        Measurement(what="a trivial MCP call over HTTP, warm", unit="ms", value=call, floor=raw),
        Measurement(
            what="  added to the server's own time", unit="ms", value=call - raw, budget=BUDGET_MS
        ),
        Measurement(what="  CPU of it in the client", unit="ms", value=cpu),
        *_cancel_rows("the end of its stream", by_stream),
        *_cancel_rows("a notification (older protocol)", by_notification),
        Measurement(what="memory without MCP, all of the server imported", unit="MB", value=before),
        Measurement(what="  with MCP", unit="MB", value=after),
    ]


def _cancel_rows(how: str, values: Sequence[float]) -> list[Measurement]:
    return [
        Measurement(
            what=f"a cancelled call: the server knows, by {how}, p50",
            unit="ms",
            value=median(values),
            budget=CANCEL_BUDGET_MS,
        ),
        Measurement(what="  p95", unit="ms", value=percentile_95(values), budget=CANCEL_BUDGET_MS),
    ]


@contextmanager
def _mcp_server(*arguments: str) -> Iterator[processes.RunningProcess]:
    command = [sys.executable, "-m", "bench.mcp_server", *arguments]
    with processes.start_process(command) as running:
        yield running


@asynccontextmanager
async def _open_client(address: str) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """A function that calls a tool, and returns its text."""
    client = PooledMcpClient(
        ClientOptions(), parse_allowed(["127.0.0.1"]), open_stdio=_open_program
    )
    endpoint = Endpoint(
        server_id="bench",
        server_name="bench",
        transport=Transport.STREAMABLE_HTTP,
        url=f"{address}/mcp",
    )

    async def call(tool: str) -> str:
        result = await client.call(endpoint, tool, {})
        if len(result.content) != 1 or not isinstance(result.content[0], Text):
            raise RequestFailed(f"The call returned {result}")
        return result.content[0].text

    try:
        yield call
    finally:
        await client.aclose()


async def _call_ms(address: str, count: int) -> tuple[float, float]:
    """The elapsed time and the CPU time of one call."""
    async with _open_client(address) as call:
        if (answer := await call("echo")) != "ok":
            raise RequestFailed(f"The call returned {answer}")
        echo = partial(call, "echo")
        elapsed = await median_ms(echo, count)
        before = time.process_time()
        for _ in range(count):
            await echo()
        return elapsed, (time.process_time() - before) * 1000 / count


async def _cancel_ms(address: str) -> list[float]:
    """How long after its caller was cancelled the tool itself is, on one clock for both processes."""
    async with _open_client(address) as call:
        await call("echo")
        return [await _cancel_once_ms(call) for _ in range(_CANCELS)]


async def _cancel_once_ms(call: Callable[[str], Awaitable[str]]) -> float:
    waiting = asyncio.ensure_future(call("wait"))
    await asyncio.sleep(_ARRIVAL_SECONDS)
    cancelled_at = time.perf_counter()
    waiting.cancel()
    async with asyncio.timeout(_NOTE_SECONDS):
        while (noted := await call("cancelled_at")) == "None":  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(_POLL_SECONDS)
    return (float(noted) - cancelled_at) * 1000


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
