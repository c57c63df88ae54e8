"""Two servers on one PostgreSQL: a turn, and a reader and a cancel at the server that does not execute the run."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle

import msgspec

from bench import database, streams
from bench.client import Client
from bench.context import (
    NO_VARIABLES,
    TURN,
    BenchContext,
    SharedDatabase,
    new_agent,
    turn_path,
)
from bench.floor import measure_ms
from bench.measurements import Measurement, median, percentile_95
from bench.processes import RunningProcess, open_client
from bench.provider import paced_words, started_at
from bench.redis_server import redis_server
from bench.rows.cancel import cancel_stream
from bench.rows.turn import TURNS_PER_AGENT
from bench.stream_recorder import StreamRecorder

TURN_BUDGET_MS = 15
READER_BUDGET_MS = 60
REDIS_READER_BUDGET_MS = 20
CANCEL_BUDGET_MS = 50

# A model's usual pace.
_WORD_SECONDS = 0.02
# A reader that has just connected reads what it has missed; words that are due later count.
_CATCH_UP_SECONDS = 0.3
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.5


async def measure(context: BenchContext) -> list[Measurement]:
    shared = context.new_shared_database()
    async with context.shared_servers(shared, 1) as servers:
        one = await _turns(servers, context.counts.turns)
    async with context.shared_servers(shared, 2) as servers:
        await wait_for_peers(shared)
        two = await _turns(servers, context.counts.turns)
        cancels = [
            await cancel_stream(context, servers[0].address, servers[1].address)
            for _ in range(context.counts.cancels)
        ]
    split = await _turns_by_worker(context)
    lags = await _lags_ms(context, NO_VARIABLES)
    with redis_server(context.new_folder()) as url:
        redis_lags = await _lags_ms(context, {"HOLDFAST_REDIS_URL": url})
    return [
        *_times("one-step turn on PostgreSQL, one server", one, TURN_BUDGET_MS),
        *_times("  two servers, alternating", two, TURN_BUDGET_MS),
        *_times("  received by an api server, executed by a worker", split, None),
        *_times("token for a reader at another server", lags, READER_BUDGET_MS),
        *_times("  with Redis", redis_lags, REDIS_READER_BUDGET_MS),
        *_times(
            "cancel at another server: provider's socket closed",
            [one.closed for one in cancels],
            CANCEL_BUDGET_MS,
        ),
        *_times("  the stream ends", [one.ended for one in cancels], None),
    ]


def _times(what: str, values: Sequence[float], budget: float | None) -> list[Measurement]:
    indent = " " * (len(what) - len(what.lstrip()) + 2)
    return [
        Measurement(what=what, unit="ms", value=median(values), budget=budget),
        Measurement(what=f"{indent}p95", unit="ms", value=percentile_95(values)),
    ]


async def _turns(servers: Sequence[RunningProcess], count: int) -> list[float]:
    """Turns of agents whose messages go to the servers in turn."""
    clients = [await Client.connect(server.address) for server in servers]
    turns: list[float] = []
    try:
        while len(turns) < count:
            path = turn_path(await new_agent(clients[0]))
            for client, _ in zip(cycle(clients), range(TURNS_PER_AGENT), strict=False):
                turns.append(await measure_ms(partial(client.post, path, TURN)))
    finally:
        for client in clients:
            client.close()
    return turns


async def _turns_by_worker(context: BenchContext) -> list[float]:
    """Each run waits in the queue and is found by a notification."""
    shared = context.new_shared_database()
    async with (
        context.shared_server(shared, {"HOLDFAST_ROLE": "worker"}),
        context.shared_servers(shared, 1, {"HOLDFAST_ROLE": "api"}) as servers,
    ):
        await wait_for_peers(shared)
        return await _turns(servers, context.counts.turns)


async def wait_for_peers(shared: SharedDatabase) -> None:
    """Wait until each server has told with a heartbeat that it is notified: by then it knows of the other."""
    with database.connect(shared.url) as connection:
        (began,) = connection.execute(b"SELECT max(started_at) FROM servers").fetchone() or (0,)
        query = "SELECT count(*) FROM servers WHERE heartbeat_at > %s AND is_notified"
        async with asyncio.timeout(_WAIT_SECONDS):
            while True:
                if connection.execute(query, (began,)).fetchone() == (2,):
                    return
                await asyncio.sleep(_POLL_SECONDS)


async def _lags_ms(context: BenchContext, variables: Mapping[str, str]) -> list[float]:
    """How late each word is at a server that does not execute the run."""
    shared = context.new_shared_database()
    async with context.shared_servers(shared, 2, variables) as (executing, other):
        await wait_for_peers(shared)
        async with asyncio.timeout(_WAIT_SECONDS):
            return await _read_elsewhere(context, executing, other)


async def _read_elsewhere(
    context: BenchContext, executing: RunningProcess, other: RunningProcess
) -> list[float]:
    name, count = streams.new_name(), context.counts.paced_words
    sent, read = StreamRecorder(), StreamRecorder()
    async with (
        open_client(executing.address) as sender,
        open_client(other.address) as reader,
        open_client(context.provider.address) as provider,
    ):
        agent_id = await new_agent(sender)
        text = paced_words(name, count, _WORD_SECONDS)
        request = streams.stream_request(text, background=True)
        sending = asyncio.create_task(sender.stream(streams.stream_path(agent_id), request, sent))
        await sent.started.wait()
        connected_at = time.monotonic()
        await reader.stream(f"/v1/runs/{sent.run_id}/stream", {}, read)
        await sending
        began = msgspec.json.decode(
            await streams.ask_provider(provider, started_at(name)), type=float
        )
    streams.check_complete(read, count)
    first = int((connected_at + _CATCH_UP_SECONDS - began) / _WORD_SECONDS)
    return read.lags_ms(began, _WORD_SECONDS)[first:]
