"""The load generator, in its own process: parallel conversations, each in a closed loop.

``python -m bench.load ADDRESSES CONVERSATIONS SECONDS`` prints what it counted as JSON. The addresses are separated by
commas; conversations use them in turn.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import msgspec
import uvloop

from bench.client import Client, RequestFailed
from bench.context import TURN, new_agent, turn_path
from bench.processes import run_to_end


class Load(msgspec.Struct, frozen=True):
    turns: int
    errors: int
    seconds: float
    turn_ms: list[float]
    # What the load generator itself used for the turns.
    cpu_ms: float = 0.0

    @property
    def turns_per_second(self) -> float:
        return self.turns / self.seconds


async def _converse(
    client: Client, agent: str, until: float, turn_ms: list[float], errors: list[str]
) -> None:
    path, turn = turn_path(agent), TURN
    while (started := time.perf_counter()) < until:
        try:
            await _turn(client, path, turn)
        except RequestFailed as error:
            errors.append(str(error))
        else:
            turn_ms.append((time.perf_counter() - started) * 1000)


async def _turn(client: Client, path: str, turn: Mapping[str, object]) -> None:
    answer = await client.post(path, turn)
    if answer["stop_reason"]["stop_reason"] != "end_turn":
        raise RequestFailed(f"The turn ended with {answer['stop_reason']}.")


async def _load(addresses: Sequence[str], conversations: int, seconds: float) -> Load:
    chosen = islice(cycle(addresses), conversations)
    clients = [await Client.connect(address) for address in chosen]
    agents = [await new_agent(client) for client in clients]
    turn_ms: list[float] = []
    errors: list[str] = []
    started, cpu_before = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for client, agent in zip(clients, agents, strict=True):
            group.create_task(_converse(client, agent, started + seconds, turn_ms, errors))
    spent = time.perf_counter() - started
    cpu_ms = (time.process_time() - cpu_before) * 1000
    for client in clients:
        client.close()
    for error in errors[:3]:
        print(error, file=sys.stderr)
    return Load(
        turns=len(turn_ms), errors=len(errors), seconds=spent, turn_ms=turn_ms, cpu_ms=cpu_ms
    )


def run_load(addresses: Sequence[str], conversations: int, seconds: float) -> Load:
    """In its own process, so that the client takes no CPU time from the bench."""
    arguments = [",".join(addresses), str(conversations), str(seconds)]
    output = run_to_end([sys.executable, "-m", "bench.load", *arguments], seconds)
    return msgspec.json.decode(output, type=Load)


if __name__ == "__main__":
    addresses, conversations, seconds = sys.argv[1:]
    loaded = uvloop.run(_load(addresses.split(","), int(conversations), float(seconds)))
    sys.stdout.buffer.write(msgspec.json.encode(loaded))
