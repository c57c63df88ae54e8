"""A turn whose prompt is a thousand messages."""

from functools import partial

from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import floor, measure_ms, median_ms
from bench.measurements import Measurement, median

BUDGET_MS = 60
MESSAGES = 1000


async def measure(context: BenchContext) -> list[Measurement]:
    count = context.counts.long_turns
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": f"This is message {number}."}
        for number in range(MESSAGES)
    ]
    async with context.warm_server() as (_, client):
        path = turn_path(await new_agent(client, initial_message_sequence=messages))
        turns = [await measure_ms(partial(client.post, path, TURN)) for _ in range(count)]
    async with floor(context.provider.address, context.new_folder()) as smallest:
        for message in messages:
            smallest.commit(message["content"])
        floor_ms = await median_ms(smallest.long_turn, count)
    return [
        Measurement(
            what=f"turn with {MESSAGES:,} messages of history",
            unit="ms",
            value=median(turns),
            floor=floor_ms,
            budget=BUDGET_MS,
        )
    ]
