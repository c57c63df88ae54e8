"""Redis as the fast path besides the store: if it fails, loses or repeats events, no reader misses anything."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from tests.support.event_log_clients import Reader, Writer, read
from tests.support.redis_server import RedisServer
from tests.support.values import Make
from tests.support.waiting import eventually

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.event_log import redis as adapter
from holdfast.adapters.event_log.factory import open_event_log
from holdfast.adapters.event_log.redis import RedisEventLog, stream_key
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.events import Event
from holdfast.errors import SettingInvalid

pytestmark = pytest.mark.slow


@pytest.fixture
async def log(store: SqliteStore, redis_server: RedisServer) -> AsyncIterator[RedisEventLog]:
    opened = RedisEventLog.connect(store, LocalBell(), redis_server.url)
    yield opened
    await opened.aclose()


@pytest.fixture
async def reader_log(store: SqliteStore, redis_server: RedisServer) -> AsyncIterator[RedisEventLog]:
    opened = RedisEventLog.connect(store, LocalBell(), redis_server.url)
    yield opened
    await opened.aclose()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
async def writer(store: SqliteStore, log: RedisEventLog, make: Make) -> Writer:
    return await Writer.begin(store, log, make, ahead=100)


async def wait_until_sent(redis: Redis, event: Event) -> None:
    """Wait until Redis has the event."""
    last = b"%d-0" % event.seq
    async with asyncio.timeout(20):
        while not await redis.xrevrange(stream_key(event.run_id), min=last):
            pass


async def test_a_run_goes_on_without_redis_and_its_readers_with_it(
    writer: Writer, log: RedisEventLog, reader_log: RedisEventLog, redis_server: RedisServer
) -> None:
    here, away = Reader(log, writer.run.id), Reader(reader_log, writer.run.id)
    published = writer.publish(2)
    await away.wait_for(2)
    redis_server.stop()
    published += writer.publish(3)
    await here.wait_for(5)
    await writer.save(ahead=50)
    await away.wait_for(5)
    redis_server.start()
    published += writer.publish(1)
    await away.wait_for(6)
    published += await writer.end()
    assert await here.read_to_end() == await away.read_to_end() == published


async def test_a_run_without_any_redis_is_read_from_the_store(
    writer: Writer, reader_log: RedisEventLog, redis_server: RedisServer
) -> None:
    redis_server.stop()
    reader = Reader(reader_log, writer.run.id)
    published = await writer.store_message() + writer.publish(3) + await writer.end()
    assert await reader.read_to_end() == published


async def test_what_redis_loses_is_read_from_the_store(
    writer: Writer, reader_log: RedisEventLog, redis: Redis
) -> None:
    published = writer.publish(3)
    await wait_until_sent(redis, published[-1])
    await redis.flushall()
    reader = Reader(reader_log, writer.run.id)
    published += writer.publish(2)
    await wait_until_sent(redis, published[-1])
    published += await writer.store_message() + await writer.end()
    assert await reader.read_to_end() == published


async def test_events_that_are_missing_in_redis_are_not_skipped(
    writer: Writer, reader_log: RedisEventLog, redis: Redis
) -> None:
    published = writer.publish(3)
    await wait_until_sent(redis, published[-1])
    await redis.flushall()
    published += writer.publish(2)
    await wait_until_sent(redis, published[-1])
    reader = Reader(reader_log, writer.run.id)
    # It has seen the gap when it asks for the next events; nothing is stored yet.
    await eventually(lambda: bool(reader_log._watch_tasks))
    await writer.save(ahead=50)
    await reader.wait_for(5)
    assert reader.seen == published
    await reader.stop()


@pytest.mark.parametrize("fields", [{"events": "[{]", "durable": 9}, {"other": "x"}])
async def test_an_entry_that_cannot_be_decoded_is_skipped(
    writer: Writer, reader_log: RedisEventLog, redis: Redis, fields: dict[str, str]
) -> None:
    published = await writer.store_message()
    reader = Reader(reader_log, writer.run.id)
    await reader.wait_for(published[-1].seq)
    await redis.xadd(stream_key(writer.run.id), fields, id="7-0")  # type: ignore[arg-type]  # redis-py's dict is invariant
    published += await writer.store_message()
    await reader.wait_for(published[-1].seq)
    published += await writer.end()
    assert await reader.read_to_end() == published


async def test_a_run_whose_writes_redis_refuses_is_read_from_the_store(
    writer: Writer, reader_log: RedisEventLog, redis: Redis
) -> None:
    await redis.set(stream_key(writer.run.id), "not a stream")
    reader = Reader(reader_log, writer.run.id)
    published = await writer.store_message() + await writer.end()
    assert await reader.read_to_end() == published


async def test_the_stream_expires_after_the_end(
    writer: Writer, reader_log: RedisEventLog, redis: Redis
) -> None:
    published = await writer.store_message()
    await wait_until_sent(redis, published[-1])
    key = stream_key(writer.run.id)
    assert adapter.ENDED_TTL_SECONDS < await redis.ttl(key) <= adapter.SILENT_TTL_SECONDS
    published += await writer.end()
    await wait_until_sent(redis, published[-1])
    assert 0 < await redis.ttl(key) <= adapter.ENDED_TTL_SECONDS
    await redis.delete(key)
    assert await read(reader_log, writer.run.id) == published


async def test_nothing_accumulates_while_redis_is_unreachable(
    store: SqliteStore, log: RedisEventLog, make: Make, redis_server: RedisServer
) -> None:
    redis_server.stop()
    for _ in range(5):
        writer = await Writer.begin(store, log, make)
        await writer.store_message()
        await writer.end()
    await eventually(lambda: not log._outbox._pending)
    assert log._outbox._sent_seqs == {}


async def test_many_events_are_sent_in_few_entries(
    writer: Writer, reader_log: RedisEventLog, redis: Redis
) -> None:
    reader = Reader(reader_log, writer.run.id)
    published = [event for _ in range(500) for event in writer.publish(1)]
    await wait_until_sent(redis, published[-1])
    assert await redis.xlen(stream_key(writer.run.id)) < 50
    await reader.wait_for(published[-1].seq)
    assert reader.seen == published
    await reader.stop()


def test_a_bad_address_is_refused(store: SqliteStore) -> None:
    with pytest.raises(SettingInvalid, match="Redis"):
        open_event_log(store, LocalBell(), "ftp://example.org")


async def test_without_a_url_redis_is_not_used(store: SqliteStore) -> None:
    assert type(open_event_log(store, LocalBell(), None)) is SqlEventLog
