"""From process start to the first healthy answer: the first start, which creates the store, and later ones."""

from bench.context import BenchContext, Home
from bench.floor import smallest_server
from bench.measurements import Measurement, median
from bench.processes import seconds_to_first_answer

BUDGET_SECONDS = 1.2


async def measure(context: BenchContext) -> list[Measurement]:
    first, later, floor = [], [], []
    for _ in range(context.counts.starts):
        home = context.new_home()
        first.append(await _start(context, home))
        later.append(await _start(context, home))
        with smallest_server() as running:
            floor.append(await seconds_to_first_answer(running, "/"))
    return [
        Measurement(
            what=f"start to first healthy answer, {which}",
            unit="s",
            value=median(seconds),
            floor=median(floor),
            budget=BUDGET_SECONDS,
        )
        for which, seconds in (("first start", first), ("later start", later))
    ]


async def _start(context: BenchContext, home: Home) -> float:
    with context.server(home) as running:
        return await seconds_to_first_answer(running, "/v1/health/")
