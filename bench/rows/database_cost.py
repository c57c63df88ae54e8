"""What turns, tokens and notifications cost PostgreSQL: bytes, log, CPU time, rings between two servers."""

import asyncio
from collections.abc import Awaitable, Callable

from bench import database, streams
from bench.client import Client
from bench.context import TURN, BenchContext, SharedDatabase, new_agent, turn_path
from bench.measurements import Measurement
from bench.processes import RunningProcess, open_client
from bench.provider import words
from bench.rows.turn import TURNS_PER_AGENT

# A model's usual pace: two or three tokens are stored together.
_WORD_SECONDS = 0.02
_STREAMS = 10
_PER_TOKENS = 1_000
_KB = 1_000
# PostgreSQL counts in steps of 10 ms, so a cheap thing must be done often.
_WAIT_SECONDS = 120.0
_SETTLE_SECONDS = 0.5


async def measure(context: BenchContext) -> list[Measurement]:
    shared = context.new_shared_database()
    async with (
        context.shared_servers(shared, 2) as (running, _),
        asyncio.timeout(_WAIT_SECONDS),
    ):
        # Both know of each other by now, or with their next heartbeats.
        await asyncio.sleep(3)
        turns = context.counts.turns
        per_turn, turn_rings = await _measure(shared, _make_turns(running, turns))
        tokens = _STREAMS * context.counts.stored_tokens
        streamed, token_rings = await _measure(
            shared, _stream(running, context.counts.stored_tokens)
        )
    notify_ms = await asyncio.to_thread(_notify_cpu_ms, shared, context.counts.notifications)
    thousands = tokens / _PER_TOKENS
    return [
        Measurement(
            what="a one-step turn in PostgreSQL: stored",
            unit="kB",
            value=per_turn.bytes / turns / _KB,
        ),
        Measurement(what="  written to its log", unit="kB", value=per_turn.wal_bytes / turns / _KB),
        Measurement(what="  CPU", unit="ms", value=per_turn.cpu_ms / turns),
        Measurement(what="  notifications", unit="each", value=turn_rings / turns),
        Measurement(
            what=f"{_PER_TOKENS:,} tokens, {_STREAMS} streams at 50 a second: stored",
            unit="kB",
            value=streamed.event_bytes / thousands / _KB,
        ),
        Measurement(
            what="  written to its log", unit="kB", value=streamed.wal_bytes / thousands / _KB
        ),
        Measurement(what="  CPU", unit="ms", value=streamed.cpu_ms / thousands),
        Measurement(what="  notifications", unit="each", value=token_rings / thousands),
        Measurement(
            what="CPU of a notification that two servers hear",
            unit="ms",
            value=notify_ms,
        ),
    ]


async def _measure(
    shared: SharedDatabase, work: Callable[[], Awaitable[None]]
) -> tuple[database.DatabaseUse, int]:
    """What the work cost, and how many notifications it caused."""
    with database.count_notifications(shared.url) as counter:
        before = database.measure_use(shared.url)
        await work()
        await asyncio.sleep(_SETTLE_SECONDS)
        return database.measure_use(shared.url) - before, counter.count


def _make_turns(running: RunningProcess, count: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        async with open_client(running.address) as client:
            for _ in range(count // TURNS_PER_AGENT):
                path = turn_path(await new_agent(client))
                for _ in range(TURNS_PER_AGENT):
                    await client.post(path, TURN)

    return work


def _stream(running: RunningProcess, count: int) -> Callable[[], Awaitable[None]]:
    async def one() -> None:
        async with open_client(running.address) as client:
            await _read(client, count)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_STREAMS):
                group.create_task(one())

    return work


async def _read(client: Client, count: int) -> None:
    agent_id = await new_agent(client)
    text = words(count, _WORD_SECONDS)
    streams.check_complete(await streams.read_stream(client, agent_id, text), count)


def _notify_cpu_ms(shared: SharedDatabase, count: int) -> float:
    """Each in a transaction of its own, as servers send them; two connections listen."""
    with (
        database.count_notifications(shared.url) as one,
        database.count_notifications(shared.url) as other,
        database.connect(shared.url) as connection,
    ):
        before = database.measure_cpu_ms(connection)
        for number in range(count):
            connection.execute(
                "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload",
                (database.CHANNELS[0], [f"bench\nrun:{number}"]),
            )
        spent = database.measure_cpu_ms(connection) - before
    if not one.count or not other.count:
        raise RuntimeError("No notification arrived.")
    return spent / count
