"""Any order of writing, storing, reading, disconnecting, crashing and reconnecting: no reader misses or repeats an event."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.event_log_clients import Reader, Writer
from tests.support.values import Make

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.event_log import event_buffer, sql
from holdfast.adapters.event_log import redis as redis_adapter
from holdfast.adapters.event_log.redis import RedisEventLog
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.events import Event
from holdfast.ports.store import Store

AHEAD = 6

MakeLog = Callable[[], SqlEventLog]


class Client:
    """A client that wants every event after ``start``, across reconnects and restarts."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.seen: list[Event] = []
        self._reader: Reader | None = None

    def connect(self, log: SqlEventLog, run_id: str) -> None:
        if self._reader is None:
            last = self.seen[-1].seq if self.seen else self.start
            self._reader = Reader(log, run_id, last)

    async def disconnect(self) -> None:
        if self._reader is not None:
            await self._reader.stop()
            self.seen += self._reader.seen
            self._reader = None

    async def read_to_end(self, log: SqlEventLog, run_id: str) -> None:
        self.connect(log, run_id)
        assert self._reader is not None
        self.seen += await self._reader.read_to_end()


class Scenario:
    """One run and its clients. ``published`` are all events that were ever written, ``durable`` those that survive a crash."""

    def __init__(self, store: Store, writer: Writer, make_log: MakeLog, log: SqlEventLog) -> None:
        self._store = store
        self._writer = writer
        self._make_log = make_log
        self._log = log
        self._apart = make_log()
        self._clients: list[Client] = []
        self._published: dict[int, Event] = {}
        self._durable: list[Event] = []

    async def publish(self, number: int) -> None:
        count = 1 + number % 4
        if self._writer.run.last_event_seq + count > self._writer.run.reserved_seq:
            await self.save(number)
        self._publish(self._writer.publish(count))

    async def save(self, _: int) -> None:
        await self._writer.save(ahead=AHEAD)
        self._mark_all_durable()

    async def checkpoint(self, _: int) -> None:
        self._publish(await self._writer.store_message())
        self._mark_all_durable()

    async def connect(self, number: int) -> None:
        client = Client(number % (self._writer.run.highest_seq + 3))
        self._clients.append(client)
        self._connect(client, number)

    async def reconnect(self, number: int) -> None:
        if self._clients:
            self._connect(self._clients[number % len(self._clients)], number)

    async def disconnect(self, number: int) -> None:
        if self._clients:
            await self._clients[number % len(self._clients)].disconnect()

    async def pass_time(self, number: int) -> None:
        for _ in range(number % 20):
            await asyncio.sleep(0)

    async def crash(self, _: int) -> None:
        for client in self._clients:
            await client.disconnect()
        self._log = self._make_log()
        self._writer = await self._writer.restart(self._log, ahead=AHEAD)

    async def end(self) -> None:
        self._publish(await self._writer.end())
        self._mark_all_durable()
        self._clients.append(Client(0))
        for number, client in enumerate(self._clients):
            await client.read_to_end(self._pick_log(number), self._writer.run.id)
            self._check(client)

    def _check(self, client: Client) -> None:
        numbers = [event.seq for event in client.seen]
        assert numbers == sorted(set(numbers)), "once, and in order"
        assert all(event.seq > client.start for event in client.seen)
        assert all(self._published[event.seq] == event for event in client.seen), (
            "as it was published"
        )
        expected = [event for event in self._durable if event.seq > client.start]
        # Events lost in a crash may have been received by readers of that time.
        assert [event for event in client.seen if event in self._durable] == expected

    def _publish(self, events: list[Event]) -> None:
        for event in events:
            assert event.seq not in self._published, "no number is given twice"
            self._published[event.seq] = event

    def _mark_all_durable(self) -> None:
        """Store all events since the last crash that are not stored yet."""
        known = {event.seq for event in self._durable}
        floor = self._writer.born
        self._durable += [
            event
            for seq, event in sorted(self._published.items())
            if seq > floor and seq not in known
        ]

    def _connect(self, client: Client, number: int) -> None:
        client.connect(self._pick_log(number), self._writer.run.id)

    def _pick_log(self, number: int) -> SqlEventLog:
        return self._apart if number % 2 else self._log


ACTS = (
    Scenario.publish,
    Scenario.save,
    Scenario.checkpoint,
    Scenario.connect,
    Scenario.reconnect,
    Scenario.disconnect,
    Scenario.pass_time,
    Scenario.crash,
)
WEIGHTS = (8, 3, 2, 3, 4, 3, 6, 1)


@pytest.fixture(params=["sql", pytest.param("redis", marks=pytest.mark.slow)])
async def make_log(request: pytest.FixtureRequest, store: SqliteStore) -> AsyncIterator[MakeLog]:
    made: list[SqlEventLog] = []

    def new() -> SqlEventLog:
        if request.param == "redis":
            made.append(
                RedisEventLog.connect(store, LocalBell(), request.getfixturevalue("redis_url"))
            )
        else:
            made.append(SqlEventLog(store, LocalBell()))
        return made[-1]

    yield new
    for log in made:
        await log.aclose()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits, so that a few dozen events count as a long run and polling is fast."""
    monkeypatch.setattr(event_buffer, "KEPT_EVENTS", 4)
    monkeypatch.setattr(event_buffer, "BATCH_EVENTS", 3)
    monkeypatch.setattr(event_buffer, "FEW_READERS", 1)
    monkeypatch.setattr(sql, "BATCH_EVENTS", 3)
    monkeypatch.setattr(sql, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(redis_adapter, "BLOCK_SECONDS", 0.005)


async def run_scenario(
    store: Store, make_log: MakeLog, make: Make, acts: list[tuple[Any, int]]
) -> None:
    log = make_log()
    writer = await Writer.begin(store, log, make, ahead=AHEAD)
    story = Scenario(store, writer, make_log, log)
    for act, number in acts:
        await act(story, number)
    await story.end()


any_acts = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(min_value=0, max_value=1_000)), max_size=40
)


@example(
    [(Scenario.connect, 0), (Scenario.publish, 3), (Scenario.crash, 0), (Scenario.reconnect, 0)]
)
@given(any_acts)
@settings(
    max_examples=60,
    deadline=None,
    # All examples share the store; each has its own run.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_each_client_gets_what_follows_its_cursor_once_and_in_order(
    store: SqliteStore, make_log: MakeLog, make: Make, acts: list[tuple[Any, int]]
) -> None:
    await run_scenario(store, make_log, make, acts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_each_client_of_a_long_scenario_gets_each_event_once_and_in_order(
    store: SqliteStore, make_log: MakeLog, make: Make, seed: int
) -> None:
    chance = random.Random(seed)
    acts = chance.choices(ACTS, WEIGHTS, k=300)
    await run_scenario(store, make_log, make, [(act, chance.randrange(1_000)) for act in acts])
