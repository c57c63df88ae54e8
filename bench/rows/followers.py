"""Readers of a run: the cost of many waiting readers, and the time until a reconnected one gets its next event."""

import asyncio
import time
from functools import partial

from bench import streams
from bench.client import Client
from bench.context import BenchContext, new_agent
from bench.floor import measure_ms, smallest_server
from bench.measurements import Measurement, median, percentile_95
from bench.processes import RunningProcess, open_client
from bench.provider import hold, words
from bench.stream_recorder import StreamRecorder

RECONNECT_BUDGET_MS = 10
WORDS = 100

# At ten milliseconds per word each word is one event.
_WORD_SECONDS = 0.01
_WAIT_SECONDS = 60.0
_KB = 1000


async def measure(context: BenchContext) -> list[Measurement]:
    return [*await _followers(context), *await _reconnect(context)]


async def _followers(context: BenchContext) -> list[Measurement]:
    count = context.counts.followers
    async with context.warm_server() as (running, client), asyncio.timeout(_WAIT_SECONDS):
        agent_id = await new_agent(client)
        sent = StreamRecorder()
        async with open_client(running.address) as sender:
            text = streams.stream_request(hold(streams.new_name()), background=True)
            sending = asyncio.create_task(sender.stream(streams.stream_path(agent_id), text, sent))
            await sent.started.wait()
            kb_each, told_ms = await _follow(running, sent.run_id, agent_id, count)
            await sending
    return [
        Measurement(what=f"{count:,} idle followers of a run, each", unit="kB", value=kb_each),
        Measurement(what="  cancel until all have heard the end", unit="ms", value=told_ms),
    ]


async def _follow(
    running: RunningProcess, run_id: str, agent_id: str, count: int
) -> tuple[float, float]:
    """Memory per follower in kB; milliseconds until the last one got the cancellation."""
    before_mb = running.memory_mb()
    readers = [await Client.connect(running.address) for _ in range(count)]
    recorders = [StreamRecorder() for _ in readers]
    following = [
        asyncio.create_task(reader.stream(f"/v1/runs/{run_id}/stream", {}, recorder))
        for reader, recorder in zip(readers, recorders, strict=True)
    ]
    try:
        await asyncio.gather(*(recorder.started.wait() for recorder in recorders))
        kb_each = (running.memory_mb() - before_mb) * _KB / count
        async with open_client(running.address) as caller:
            called_at = time.monotonic()
            await caller.post(f"/v1/agents/{agent_id}/messages/cancel", {})
            await asyncio.gather(*following)
            return kb_each, (time.monotonic() - called_at) * 1000
    finally:
        for reader in readers:
            reader.close()
        await asyncio.gather(*following, return_exceptions=True)


async def _reconnect(context: BenchContext) -> list[Measurement]:
    """Reconnect to the middle of an ended run, whose events come from the store."""
    async with context.warm_server() as (running, client):
        run_id, last_seq = await _ended_run(client)
        taken = [
            await _first_replayed_ms(running.address, run_id, last_seq // 2)
            for _ in range(context.counts.reconnects)
        ]
    with smallest_server() as smallest:
        floors = [
            await measure_ms(partial(_ask, smallest.address))
            for _ in range(context.counts.reconnects)
        ]
    return [
        Measurement(
            what="reconnect to first replayed event",
            unit="ms",
            value=median(taken),
            floor=median(floors),
            budget=RECONNECT_BUDGET_MS,
        ),
        Measurement(what="  p95", unit="ms", value=percentile_95(taken)),
    ]


async def _ended_run(client: Client) -> tuple[str, int]:
    agent_id, recorder = await new_agent(client), StreamRecorder()
    text = streams.stream_request(words(WORDS, _WORD_SECONDS), background=True)
    await client.stream(streams.stream_path(agent_id), text, recorder)
    streams.check_complete(recorder, WORDS)
    return recorder.run_id, recorder.last_seq


async def _first_replayed_ms(address: str, run_id: str, after: int) -> float:
    """Uses a new connection, like a client that lost its old one."""
    recorder = StreamRecorder()
    async with open_client(address) as client:
        await client.stream(f"/v1/runs/{run_id}/stream", {"starting_after": after}, recorder)
    if not 0 < len(recorder.words) < WORDS:
        raise RuntimeError(f"{len(recorder.words)} words were replayed, not a part of {WORDS}.")
    return recorder.first_ms


async def _ask(address: str) -> None:
    async with open_client(address) as client:
        await client.request("GET", "/")
