"""A chain of tool calls in the sandbox: the time of the turn, by the number of its calls."""

from bench.client import Client
from bench.context import TURN, BenchContext, new_agent, turn_path
from bench.floor import floor, measure_ms, median_ms
from bench.measurements import Measurement, median
from bench.provider import CHAIN_CALLS, CHAIN_TOOL

BUDGET_MS = 25

_SOURCE = f'''
def {CHAIN_TOOL}(number: int) -> int:
    """Add one.

    Args:
        number: Any number.
    """
    return number + 1
'''


async def measure(context: BenchContext) -> list[Measurement]:
    count = context.counts.chains
    async with context.warm_server() as (_, client):
        tool = await client.post("/v1/tools/", {"source_code": _SOURCE})
        # The first call starts the sandbox's fork server, once per server.
        await _chain(client, tool["id"])
        steps = [await _chain(client, tool["id"]) / CHAIN_CALLS for _ in range(count)]
    async with floor(context.provider.address, context.new_folder()) as smallest:
        floor_ms = await median_ms(smallest.tool_step, count * CHAIN_CALLS)
    return [
        Measurement(
            what=f"step of a chain of {CHAIN_CALLS} tool calls",
            unit="ms",
            value=median(steps),
            floor=floor_ms,
            budget=BUDGET_MS,
        )
    ]


async def _chain(client: Client, tool_id: str) -> float:
    """One turn with the whole chain, of a new agent."""
    path = turn_path(await new_agent(client, tool_ids=[tool_id]))
    answers: list[dict[str, list[dict[str, object]]]] = []

    async def turn() -> None:
        answers.append(await client.post(path, TURN))

    taken = await measure_ms(turn)
    returns = [
        message
        for message in answers[0]["messages"]
        if message["message_type"] == "tool_return_message" and message["status"] == "success"
    ]
    if len(returns) != CHAIN_CALLS:
        raise RuntimeError(f"The chain had {len(returns)} good calls, not {CHAIN_CALLS}.")
    return taken
