"""Concurrent streams at reading speed: how far they lag behind the provider.

A word is due by the provider's schedule, and one clock serves all processes. The provider's own
delay is included; the floor, the same streams without a server in between, shows how much that is.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain

from bench import streams
from bench.context import BenchContext
from bench.measurements import Measurement, median, percentile_95
from bench.processes import open_client
from bench.stream_recorder import StreamRecorder

BUDGET_MS = 100
BUDGET_STREAMS = 50
AT_ONCE = (20, BUDGET_STREAMS)
WORD_SECONDS = 0.01


async def measure(stage: BenchContext) -> list[Measurement]:
    figures: list[Measurement] = []
    for count in AT_ONCE:
        figures += await _measure(stage, count)
    return figures


async def _measure(stage: BenchContext, count: int) -> list[Measurement]:
    async with stage.warm_server() as (running, _):
        agents = await streams.create_agents(running.address, count)
        cpu_before = running.cpu_ms()
        ours = await _lags_ms(stage, running.address, agents)
        cpu_ms = running.cpu_ms() - cpu_before
    bare = await _lags_ms(stage, stage.provider.address, [None] * count)
    return [
        Measurement(
            what=f"{count} streams at {WORD_SECONDS * 1000:.0f} ms per token, lag p50",
            unit="ms",
            value=median(ours),
            floor=median(bare),
            budget=BUDGET_MS if count == BUDGET_STREAMS else None,
        ),
        Measurement(what="  p95", unit="ms", value=percentile_95(ours), floor=percentile_95(bare)),
        Measurement(what="  CPU per 500 tokens", unit="ms", value=cpu_ms * 500 / len(ours)),
    ]


async def _lags_ms(stage: BenchContext, address: str, agents: Sequence[str | None]) -> list[float]:
    """The lags of all streams: one stream per agent, or one of the bare provider for each None."""
    lags = await asyncio.gather(*(_one(stage, address, agent) for agent in agents))
    return list(chain.from_iterable(lags))


async def _one(stage: BenchContext, address: str, agent_id: str | None) -> list[float]:
    async with open_client(address) as client, open_client(stage.provider.address) as provider:

        async def hear(text: str) -> StreamRecorder:
            if agent_id is None:
                return await streams.read_provider_stream(client, text)
            return await streams.read_stream(client, agent_id, text)

        return await streams.lags_ms(provider, hear, stage.counts.paced_words, WORD_SECONDS)
