"""What every EventLog does, on each database and for each kind of reader."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from tests.support.event_log_clients import WAIT_SECONDS, Reader, Writer, read
from tests.support.values import Make

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.event_log.event_buffer import BATCH_EVENTS, FEW_READERS, KEPT_EVENTS
from holdfast.adapters.event_log.redis import RedisEventLog
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.errors import NotFound
from holdfast.ports.event_log import EventLog
from holdfast.ports.store import Store

MakeLog = Callable[[str], EventLog]
HERE, ELSEWHERE, REDIS = "here", "elsewhere", "redis"


@pytest.fixture
async def any_store(blank_store_url: str, cipher: Cipher) -> AsyncIterator[Store]:
    """A store that is closed while readers may still follow its log."""
    opened = await open_store(blank_store_url, cipher=cipher)
    yield opened
    await opened.close()


@pytest.fixture
async def make_log(any_store: Store, request: pytest.FixtureRequest) -> AsyncIterator[MakeLog]:
    """Makes logs as separate processes would have them; each is closed at the end."""
    made: list[SqlEventLog] = []

    def new(kind: str) -> EventLog:
        if kind == REDIS:
            url = request.getfixturevalue("redis_url")
            made.append(RedisEventLog.connect(any_store, LocalBell(), url))
        else:
            made.append(SqlEventLog(any_store, LocalBell()))
        return made[-1]

    yield new
    for log in made:
        await log.aclose()


@pytest.fixture(params=[HERE, ELSEWHERE, pytest.param(REDIS, marks=pytest.mark.slow)])
def reader_location(request: pytest.FixtureRequest) -> Any:
    """The location of the reader: in the writer's process, in another one, or in another one connected by Redis."""
    return request.param


@pytest.fixture
def log(reader_location: str, make_log: MakeLog) -> EventLog:
    """The writer's log."""
    return make_log(reader_location)


@pytest.fixture
def reader_log(reader_location: str, log: EventLog, make_log: MakeLog) -> EventLog:
    """The reader's log."""
    return log if reader_location == HERE else make_log(reader_location)


@pytest.fixture
async def writer(any_store: Store, log: EventLog, make: Make) -> Writer:
    return await Writer.begin(any_store, log, make, ahead=50)


async def test_a_reader_gets_each_event_once_in_order_and_then_the_end(
    writer: Writer, reader_log: EventLog
) -> None:
    reader = Reader(reader_log, writer.run.id)
    published = await writer.store_message()
    await reader.wait_for(published[-1].seq)
    published += writer.publish(3)
    await writer.save()
    await reader.wait_for(published[-1].seq)
    published += writer.publish(2)
    published += await writer.end()
    assert await reader.read_to_end() == published
    assert [event.seq for event in published] == [*range(1, 9)]


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 6])
async def test_a_reader_gets_what_follows_its_cursor(
    writer: Writer, reader_log: EventLog, after: int
) -> None:
    published = await writer.store_message() + writer.publish(2)
    await writer.save()
    early = Reader(reader_log, writer.run.id, after)
    published += writer.publish(1) + await writer.end()
    expected = [event for event in published if event.seq > after]
    assert await early.read_to_end() == expected
    assert await read(reader_log, writer.run.id, after) == expected


@pytest.mark.parametrize("beyond", [0, 1, 10**12])
async def test_a_cursor_at_or_beyond_the_end_of_an_ended_run_gets_nothing(
    writer: Writer, reader_log: EventLog, beyond: int
) -> None:
    (ended,) = await writer.end()
    assert await read(reader_log, writer.run.id, ended.seq + beyond) == []


async def test_a_cursor_beyond_the_end_of_a_live_run_gets_nothing_until_the_run_is_there(
    writer: Writer, reader_log: EventLog
) -> None:
    await writer.store_message()
    reader, far = Reader(reader_log, writer.run.id, 4), Reader(reader_log, writer.run.id, 1_000)
    near = Reader(reader_log, writer.run.id, 2)
    published = writer.publish(5)
    await writer.save()
    await near.wait_for(published[-1].seq)
    published += await writer.end()
    assert await reader.read_to_end() == [event for event in published if event.seq > 4]
    assert await far.read_to_end() == []


async def test_a_run_that_is_not_there_is_not_found(reader_log: EventLog) -> None:
    with pytest.raises(NotFound, match="Run with ID run-0 not found"):
        await read(reader_log, "run-0")


async def test_a_run_is_replayed_in_another_process_after_its_end(
    writer: Writer, reader_location: str, make_log: MakeLog
) -> None:
    published = await writer.store_message() + writer.publish(2)
    await writer.save()
    published += writer.publish(450) + await writer.end()
    assert await read(make_log(reader_location), writer.run.id) == published


@pytest.mark.parametrize("saved", [0, 2, 5])
async def test_a_crash_leaves_one_jump_in_the_numbers_and_readers_go_on(
    writer: Writer, reader_location: str, make_log: MakeLog, saved: int
) -> None:
    published = await writer.store_message()
    published += writer.publish(saved)
    await writer.save(ahead=20)
    lost = writer.publish(3)
    log = make_log(reader_location)
    reader_log = log if reader_location == HERE else make_log(reader_location)
    cursors = [0, published[-1].seq, lost[1].seq, lost[-1].seq, lost[-1].seq + 4]
    early = [Reader(reader_log, writer.run.id, cursor) for cursor in cursors]
    second = await writer.restart(log, ahead=20)
    published += second.publish(2)
    assert published[-2].seq == 2 + saved + 20 + 1
    published += await second.store_message() + await second.end()
    for reader in early:
        expected = [event for event in published if event.seq > reader.after]
        # A reader with Redis may still get events that were never stored.
        seen = [event for event in await reader.read_to_end() if event not in lost]
        assert seen == expected
        late = await read(reader_log, writer.run.id, reader.after)
        assert [event for event in late if event not in lost] == expected


async def test_a_reader_may_come_before_a_process_executes_the_run(
    any_store: Store, reader_location: str, make_log: MakeLog, make: Make
) -> None:
    first = await Writer.begin(any_store, make_log(reader_location), make)
    log = make_log(reader_location)
    reader = Reader(log, first.run.id)
    beside = await Writer.begin(any_store, log, make)
    await read_after_end(beside, log)
    second = await first.restart(log)
    published = await second.store_message() + await second.end()
    assert await reader.read_to_end() == published


async def read_after_end(writer: Writer, log: EventLog) -> None:
    ended = await writer.end()
    assert await read(log, writer.run.id) == ended


async def test_many_readers_of_one_run_all_get_everything(
    writer: Writer, reader_log: EventLog
) -> None:
    readers = [Reader(reader_log, writer.run.id, number % 3) for number in range(100)]
    published = await writer.store_message()
    for _ in range(20):
        published += writer.publish(2)
        await writer.save(ahead=10)
    published += await writer.end()
    for reader in readers:
        assert await reader.read_to_end() == published[reader.after :]


async def test_readers_that_leave_do_not_disturb_others(
    writer: Writer, reader_log: EventLog
) -> None:
    staying = Reader(reader_log, writer.run.id)
    published = await writer.store_message()
    for _ in range(5):
        leaving = Reader(reader_log, writer.run.id, published[-1].seq - 1)
        await leaving.wait_for(published[-1].seq)
        await leaving.stop()
        published += await writer.store_message()
    published += await writer.end()
    assert await staying.read_to_end() == published


async def test_a_reader_that_stops_reading_delays_no_other_and_misses_nothing(
    writer: Writer, reader_log: EventLog
) -> None:
    published = await writer.store_message()
    async with aclosing(reader_log.follow(writer.run.id)) as stopped:
        seen = [*await asyncio.wait_for(anext(stopped), WAIT_SECONDS)]
        for _ in range(30):
            published += writer.publish(BATCH_EVENTS)
            await writer.save(ahead=BATCH_EVENTS)
        published += await writer.end()
        assert await read(reader_log, writer.run.id) == published
        async with asyncio.timeout(WAIT_SECONDS):
            async for events in stopped:
                assert len(events) <= BATCH_EVENTS
                seen += events
    assert seen == published


async def test_a_long_run_keeps_only_its_newest_durable_events_in_memory(
    any_store: Store, make: Make
) -> None:
    log = SqlEventLog(any_store, LocalBell())
    writer = await Writer.begin(any_store, log, make)
    reader = Reader(log, writer.run.id)
    published = []
    for _ in range(10):
        published += writer.publish(KEPT_EVENTS)
        await writer.save(ahead=KEPT_EVENTS)
    live = log._local[writer.run.id]
    assert len(live._events) <= 2 * KEPT_EVENTS
    published += writer.publish(5 * KEPT_EVENTS)
    assert len(live._events) >= 5 * KEPT_EVENTS, "what is not durable is in memory or nowhere"
    late = Reader(log, writer.run.id, 17)
    published += await writer.end()
    assert await reader.read_to_end() == published
    assert await late.read_to_end() == published[17:]


async def test_published_events_are_seen_before_they_are_durable(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    log = make_log(HERE)
    writer = await Writer.begin(any_store, log, make, ahead=9)
    reader = Reader(log, writer.run.id)
    published = writer.publish(2)
    await reader.wait_for(2)
    assert reader.seen == published
    assert await any_store.read(lambda tx: tx.events.list_after(writer.run.id, 0, 9)) == []
    await reader.stop()


@pytest.mark.slow
async def test_redis_shows_events_to_other_processes_before_they_are_durable(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    writer = await Writer.begin(any_store, make_log(REDIS), make, ahead=9)
    reader = Reader(make_log(REDIS), writer.run.id)
    published = writer.publish(2)
    await reader.wait_for(2)
    assert reader.seen == published
    assert await any_store.read(lambda tx: tx.events.list_after(writer.run.id, 0, 9)) == []
    await reader.stop()


async def test_nothing_follows_the_end(writer: Writer, log: EventLog, reader_log: EventLog) -> None:
    reader = Reader(reader_log, writer.run.id)
    (ended,) = await writer.end()
    writer.publish(1)
    assert await reader.read_to_end() == [ended]
    assert await read(reader_log, writer.run.id) == [ended]


async def test_readers_go_on_with_the_store_when_the_process_closes_the_run(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    """Another server has taken the run over, and ends it."""
    log = make_log(HERE)
    writer = await Writer.begin(any_store, log, make)
    reader = Reader(log, writer.run.id)
    published = await writer.store_message()
    await reader.wait_for(published[-1].seq)
    log.close(writer.run.id)
    ended = await Writer(any_store, make_log(HERE), writer.run, writer.thread, make).end()
    assert await reader.read_to_end() == published + ended


async def test_readers_get_the_end_that_the_process_has_not_published(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    """A run may be over without its worker: then the worker closes the log, and only the store has the end."""
    log = make_log(HERE)
    worker = await Writer.begin(any_store, log, make)
    reader = Reader(log, worker.run.id)
    published = await worker.store_message()
    await reader.wait_for(published[-1].seq)
    ended = await Writer(any_store, make_log(HERE), worker.run, worker.thread, make).end()
    log.close(worker.run.id)
    assert await reader.read_to_end() == published + ended


async def test_all_readers_end_when_the_process_disconnects_them(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    log, other = make_log(HERE), make_log(HERE)
    local = await Writer.begin(any_store, log, make)
    remote = await Writer.begin(any_store, other, make)
    published = await local.store_message(), await remote.store_message()
    readers = [Reader(log, writer.run.id) for writer in (local, remote)]
    for reader in readers:
        await reader.wait_for(2)
    log.disconnect_readers()
    assert [await reader.read_to_end() for reader in readers] == [*published]
    assert [await read(log, writer.run.id) for writer in (local, remote)] == [*published]


@pytest.mark.parametrize(
    "reader_location", [ELSEWHERE, pytest.param(REDIS, marks=pytest.mark.slow)]
)
async def test_readers_in_other_processes_learn_that_a_run_was_deleted(
    any_store: Store, writer: Writer, reader_log: EventLog
) -> None:
    published = await writer.store_message()
    reader = Reader(reader_log, writer.run.id)
    await reader.wait_for(published[-1].seq)
    await any_store.write(lambda tx: tx.runs.delete(DEFAULT_ORGANIZATION_ID, writer.run.id))
    with pytest.raises(NotFound):
        await reader.read_to_end()


async def test_many_readers_are_woken_once_for_many_events(
    any_store: Store, make: Make, make_log: MakeLog
) -> None:
    log = make_log(HERE)
    writer = await Writer.begin(any_store, log, make, ahead=200)
    crowd = [Reader(log, writer.run.id) for _ in range(1_000)]
    published = await writer.store_message()
    for reader in crowd:
        await reader.wait_for(published[-1].seq)
    woken = crowd[0].batches
    for _ in range(20):
        published += writer.publish(1)
        await asyncio.sleep(0)
    published += await writer.end()
    for reader in crowd:
        assert await reader.read_to_end() == published
        assert reader.batches - woken < 10
    assert len(crowd) > FEW_READERS
