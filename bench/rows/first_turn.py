"""The first turn after a start: a message to an existing agent once the server is idle.

A server answers health first and loads its providers in the background, about a second; so we
wait until the process is idle. An earlier turn waits for the loading.
"""

from functools import partial

from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import floor, measure_ms
from bench.measurements import Measurement, median
from bench.processes import open_client

BUDGET_MS = 150


async def measure(context: BenchContext) -> list[Measurement]:
    home = context.new_home()
    with context.server(home) as running:
        async with open_client(running.address) as client:
            path = turn_path(await new_agent(client))
    turns, floors = [], []
    for _ in range(context.counts.starts):
        with context.server(home) as running:
            await running.wait_until_idle()
            async with open_client(running.address) as client:
                turns.append(await measure_ms(partial(client.post, path, TURN)))
        floors.append(await measure_ms(lambda: _first_floor_turn(context)))
    return [
        Measurement(
            what="first turn after start",
            unit="ms",
            value=median(turns),
            floor=median(floors),
            budget=BUDGET_MS,
        )
    ]


async def _first_floor_turn(context: BenchContext) -> None:
    """Connect, make the table, call, commit."""
    async with floor(context.provider.address, context.new_folder()) as smallest:
        await smallest.turn()
