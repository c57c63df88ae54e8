"""One-step turns, one after the other. Each agent makes only a few, so that its history stays short."""

from functools import partial

from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import floor, measure_ms, median_ms
from bench.measurements import Measurement, median, percentile_95

BUDGET_MS = 10
TURNS_PER_AGENT = 10


async def measure(context: BenchContext) -> list[Measurement]:
    count = context.counts.turns
    turns: list[float] = []
    async with context.warm_server() as (_, client):
        while len(turns) < count:
            path = turn_path(await new_agent(client))
            turns += [
                await measure_ms(partial(client.post, path, TURN)) for _ in range(TURNS_PER_AGENT)
            ]
    async with floor(context.provider.address, context.new_folder()) as smallest:
        call_ms = await median_ms(smallest.call, count)
        turn_ms = await median_ms(smallest.turn, count)
        commit_ms = await median_ms(smallest.one_commit, count)
    return [
        Measurement(
            what="one-step turn", unit="ms", value=median(turns), floor=turn_ms, budget=BUDGET_MS
        ),
        Measurement(what="  p95", unit="ms", value=percentile_95(turns)),
        Measurement(
            what="  without the provider's part",
            unit="ms",
            value=median(turns) - call_ms,
            floor=commit_ms,
        ),
    ]
