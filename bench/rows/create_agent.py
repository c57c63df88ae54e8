"""Creating an agent, with and without the tools that every agent gets, and with memory blocks."""

from typing import Any

from bench.client import Client
from bench.context import BenchContext, new_agent
from bench.floor import floor, measure_ms, median_ms
from bench.measurements import Measurement, median

BUDGET_MS = 10

_BLOCKS = [
    {"label": "human", "value": "The human's name is Ada."},
    {"label": "persona", "value": "I am a helpful agent."},
]
_KINDS: dict[str, dict[str, Any]] = {
    "create agent, base tools and two blocks": {"memory_blocks": _BLOCKS},
    "  bare": {"include_base_tools": False},
}


async def measure(context: BenchContext) -> list[Measurement]:
    count = context.counts.agents
    async with context.warm_server() as (_, client):
        taken = {what: await _create(client, count, fields) for what, fields in _KINDS.items()}
    async with floor(context.provider.address, context.new_folder()) as smallest:
        floor_ms = await median_ms(smallest.one_commit, count)
    return [
        Measurement(what=what, unit="ms", value=value, floor=floor_ms, budget=BUDGET_MS)
        for what, value in taken.items()
    ]


async def _create(client: Client, count: int, fields: dict[str, Any]) -> float:
    return median([await measure_ms(lambda: new_agent(client, **fields)) for _ in range(count)])
