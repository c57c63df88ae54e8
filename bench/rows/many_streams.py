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


async def measure(context: BenchContext) -> list[Measurement]:
    measurements: list[Measurement] = []
    for count in AT_ONCE:
        measurements += await _measure(context, count)
    return measurements


async def _measure(context: BenchContext, count: int) -> list[Measurement]:
    async with context.warm_server() as (running, _):
        agents = await streams.create_agents(running.address, count)
        cpu_before = running.cpu_ms()
        server_lags = await _lags_ms(context, running.address, agents)
        cpu_ms = running.cpu_ms() - cpu_before
    provider_lags = await _lags_ms(context, context.provider.address, [None] * count)
    return [
        Measurement(
            what=f"{count} streams at {WORD_SECONDS * 1000:.0f} ms per token, lag p50",
            unit="ms",
            value=median(server_lags),
            floor=median(provider_lags),
            budget=BUDGET_MS if count == BUDGET_STREAMS else None,
        ),
        Measurement(
            what="  p95",
            unit="ms",
            value=percentile_95(server_lags),
            floor=percentile_95(provider_lags),
        ),
        Measurement(what="  CPU per 500 tokens", unit="ms", value=cpu_ms * 500 / len(server_lags)),
    ]


async def _lags_ms(
    context: BenchContext, address: str, agents: Sequence[str | None]
) -> list[float]:
    """The lags of all streams: one stream per agent, or one of the bare provider for each None."""
    lags = await asyncio.gather(*(_one_stream_lags_ms(context, address, agent) for agent in agents))
    return list(chain.from_iterable(lags))


async def _one_stream_lags_ms(
    context: BenchContext, address: str, agent_id: str | None
) -> list[float]:
    async with open_client(address) as client, open_client(context.provider.address) as provider:

        async def hear(text: str) -> StreamRecorder:
            if agent_id is None:
                return await streams.read_provider_stream(client, text)
            return await streams.read_stream(client, agent_id, text)

        return await streams.lags_ms(provider, hear, context.counts.paced_words, WORD_SECONDS)
