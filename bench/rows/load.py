"""Many concurrent conversations on one process: turns per second, and memory."""

from bench import floor
from bench.context import BenchContext
from bench.load import run_load
from bench.measurements import Measurement, median, percentile_95
from bench.processes import seconds_to_first_answer

IDLE_BUDGET_MB = 130
LOADED_BUDGET_MB = 150
BUDGET_TURNS_PER_SECOND = 150


async def measure(context: BenchContext) -> list[Measurement]:
    counts = context.counts
    with floor.smallest_server() as smallest:
        await seconds_to_first_answer(smallest, "/")
        floor_mb = smallest.memory_mb()
    with context.server(context.new_home()) as running:
        await running.wait_until_idle()
        idle_mb = running.memory_mb()
        load = run_load([running.address], counts.conversations, counts.load_seconds)
        await running.wait_until_idle()
        loaded_mb, peak_mb = running.memory_mb(), running.peak_memory_mb()
    floor_rate = await floor.turns_per_second(
        context.provider.address,
        context.new_folder(),
        counts.conversations,
        counts.load_seconds / 2,
    )
    at_once = f"{counts.conversations} conversations"
    return [
        _memory("memory idle, providers loaded", idle_mb, floor_mb, IDLE_BUDGET_MB),
        _memory("memory after load", loaded_mb, floor_mb, LOADED_BUDGET_MB),
        _memory("memory, peak", peak_mb, floor_mb, None),
        Measurement(
            what=f"turns/s, one process, {at_once}",
            unit="turns/s",
            value=load.turns_per_second,
            floor=floor_rate,
            budget=BUDGET_TURNS_PER_SECOND,
            more_is_better=True,
        ),
        Measurement(what="  errors", unit="", value=load.errors, budget=0),
        Measurement(what="  turn under this load, median", unit="ms", value=median(load.turn_ms)),
        Measurement(
            what="  turn under this load, p95", unit="ms", value=percentile_95(load.turn_ms)
        ),
    ]


def _memory(what: str, value: float, floor_mb: float, budget: float | None) -> Measurement:
    return Measurement(what=what, unit="MB", value=value, floor=floor_mb, budget=budget)
