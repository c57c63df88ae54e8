"""Streams at once, each at a reader's pace: how far they fall behind the provider.

A word is due by the provider's schedule, and one clock serves all processes. What the provider itself is
late counts as ours; the floor, the same streams without a server between, shows how much that is.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain

from bench import streams
from bench.figures import Figure, median, percentile_95
from bench.hearing import Hearing
from bench.processes import connected
from bench.stage import Stage

BUDGET_MS = 100
BUDGET_STREAMS = 50
AT_ONCE = (20, BUDGET_STREAMS)
WORD_SECONDS = 0.01


async def measure(stage: Stage) -> list[Figure]:
    figures: list[Figure] = []
    for count in AT_ONCE:
        figures += await _measure(stage, count)
    return figures


async def _measure(stage: Stage, count: int) -> list[Figure]:
    async with stage.warm_server() as (running, _):
        agents = await streams.agents(running.address, count)
        cpu_before = running.cpu_ms()
        ours = await _lags_ms(stage, running.address, agents)
        cpu_ms = running.cpu_ms() - cpu_before
    bare = await _lags_ms(stage, stage.provider.address, [None] * count)
    return [
        Figure(
            what=f"{count} streams at {WORD_SECONDS * 1000:.0f} ms per token, lag p50",
            unit="ms",
            value=median(ours),
            floor=median(bare),
            budget=BUDGET_MS if count == BUDGET_STREAMS else None,
        ),
        Figure(what="  p95", unit="ms", value=percentile_95(ours), floor=percentile_95(bare)),
        Figure(what="  CPU per 500 tokens", unit="ms", value=cpu_ms * 500 / len(ours)),
    ]


async def _lags_ms(stage: Stage, address: str, agents: Sequence[str | None]) -> list[float]:
    """Of all streams together: one for each agent, or for each None one of the bare provider."""
    lags = await asyncio.gather(*(_one(stage, address, agent) for agent in agents))
    return list(chain.from_iterable(lags))


async def _one(stage: Stage, address: str, agent_id: str | None) -> list[float]:
    async with connected(address) as client, connected(stage.provider.address) as provider:

        async def hear(text: str) -> Hearing:
            if agent_id is None:
                return await streams.heard_bare(client, text)
            return await streams.heard(client, agent_id, text)

        return await streams.lags_ms(provider, hear, stage.counts.paced_words, WORD_SECONDS)
