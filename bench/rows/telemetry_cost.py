"""The cost of telemetry: the same turns and streams on four servers with different telemetry, in turn.

The servers share the machine's noise. CPU time is more meaningful than elapsed time: it limits a busy server.
"""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from bench import streams
from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import measure_ms
from bench.measurements import Measurement, median
from bench.processes import RunningProcess, open_client
from bench.provider import words

TOKENS = 500
TURNS_PER_AGENT = 10
# Slow enough that each token is passed on before the next one arrives.
_PAUSE_SECONDS = 0.002


@dataclass(slots=True)
class _ObservedServer:
    how: str
    running: RunningProcess
    turns_ms: list[float] = field(default_factory=list)
    turn_cpu_ms: float = 0.0
    stream_cpu_ms: float = 0.0


async def measure(context: BenchContext) -> list[Measurement]:
    async with AsyncExitStack() as stack:
        ways = _telemetry_variants(stack.enter_context(_collector()))
        servers = []
        for how, variables in ways.items():
            running, _ = await stack.enter_async_context(context.warm_server(variables))
            servers.append(_ObservedServer(how, running))
        await _take_turns(context, servers)
        await _stream(context, servers)
        return [measurement for server in servers for measurement in _measurements(server)]


def _telemetry_variants(collector: str) -> dict[str, Mapping[str, str]]:
    return {
        "unwatched": {},
        "a line of log for each run": {"HOLDFAST_LOG_LEVEL": "info", "HOLDFAST_LOG_FORMAT": "json"},
        "provider traces": {"HOLDFAST_PROVIDER_TRACES": "true"},
        "spans and metrics": {"HOLDFAST_METRICS": "on", "HOLDFAST_OTLP_ENDPOINT": collector},
    }


async def _take_turns(context: BenchContext, servers: list[_ObservedServer]) -> None:
    before = [server.running.cpu_ms() for server in servers]
    rounds = context.counts.turns // TURNS_PER_AGENT
    for _ in range(rounds):
        for server in servers:
            async with open_client(server.running.address) as client:
                turn = partial(client.post, turn_path(await new_agent(client)), TURN)
                server.turns_ms += [await measure_ms(turn) for _ in range(TURNS_PER_AGENT)]
    for server, spent in zip(servers, before, strict=True):
        server.turn_cpu_ms = (server.running.cpu_ms() - spent) / (rounds * TURNS_PER_AGENT)


async def _stream(context: BenchContext, servers: list[_ObservedServer]) -> None:
    before = [server.running.cpu_ms() for server in servers]
    for _ in range(context.counts.single_streams):
        for server in servers:
            async with open_client(server.running.address) as client:
                prompt = words(TOKENS, _PAUSE_SECONDS)
                recorded = await streams.read_stream(client, await new_agent(client), prompt)
            streams.check_complete(recorded, TOKENS)
    for server, spent in zip(servers, before, strict=True):
        server.stream_cpu_ms = (server.running.cpu_ms() - spent) / context.counts.single_streams


def _measurements(server: _ObservedServer) -> list[Measurement]:
    return [
        Measurement(what=f"{server.how}: one-step turn", unit="ms", value=median(server.turns_ms)),
        Measurement(what="  CPU", unit="ms", value=server.turn_cpu_ms),
        Measurement(what=f"  CPU per {TOKENS} tokens", unit="ms", value=server.stream_cpu_ms),
        Measurement(what="  memory", unit="MB", value=server.running.memory_mb()),
    ]


class _CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@contextmanager
def _collector() -> Iterator[str]:
    """The address of a collector that accepts everything. It runs in a thread, because a stopping server waits for it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _CollectorHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
