"""Races while a reader queries the store: its result is stale because the run has continued."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.support.event_log_clients import WAIT_SECONDS, Reader, Writer, read
from tests.support.values import Make

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.event_log.event_buffer import KEPT_EVENTS
from holdfast.adapters.event_log.sql import SqlEventLog
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.events import RunEnded
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Store, Transaction

T = TypeVar("T")


class PausedStore:
    """Delays the result of a read, as a slow disk or thread would, until the test releases it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._let_go = asyncio.Event()
        self._let_go.set()
        self.looked = asyncio.Event()

    def pause(self) -> None:
        self.looked.clear()
        self._let_go.clear()

    def resume(self) -> None:
        self._let_go.set()

    async def read(self, work: Callable[[Transaction], T]) -> T:
        answer = await self._store.read(work)
        self.looked.set()
        await self._let_go.wait()
        return answer

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.write(work)

    async def close(self) -> None: ...


@pytest.fixture
def paused_store(store: SqliteStore) -> PausedStore:
    return PausedStore(store)


async def start_reading(
    paused_store: PausedStore, log: SqlEventLog, run_id: str, after: int = 0
) -> Reader:
    """A reader with a stale result from the store."""
    paused_store.pause()
    reader = Reader(log, run_id, after)
    await asyncio.wait_for(paused_store.looked.wait(), WAIT_SECONDS)
    return reader


async def test_a_run_that_ends_during_a_read_is_seen_to_end(
    store: SqliteStore, paused_store: PausedStore, make: Make
) -> None:
    first = await Writer.begin(store, SqlEventLog(store, LocalBell()), make, ahead=5)
    published = first.publish(2)
    await first.save(ahead=5)
    log = SqlEventLog(paused_store, LocalBell())
    second = await first.restart(log)
    reader = await start_reading(paused_store, log, first.run.id)
    published += await second.end()
    paused_store.resume()
    assert await reader.read_to_end() == published
    await log.aclose()


async def test_a_run_that_starts_during_a_read_is_read_from_memory(
    store: SqliteStore, paused_store: PausedStore, make: Make
) -> None:
    first = await Writer.begin(store, SqlEventLog(store, LocalBell()), make)
    log = SqlEventLog(paused_store, LocalBell())
    reader = await start_reading(paused_store, log, first.run.id)
    second = await first.restart(log, ahead=9)
    paused_store.resume()
    published = second.publish(3)
    await reader.wait_for(published[-1].seq)
    assert reader.seen == published
    assert await store.read(lambda tx: tx.events.list_after(first.run.id, 0, 9)) == []
    await reader.stop()
    await log.aclose()


async def test_events_that_are_trimmed_during_a_read_are_not_skipped(
    store: SqliteStore, paused_store: PausedStore, make: Make
) -> None:
    log = SqlEventLog(paused_store, LocalBell())
    writer = await Writer.begin(store, log, make)
    published = writer.publish(3 * KEPT_EVENTS)
    await writer.save()
    assert log._local[writer.run.id].floor > 0
    cursor = log._local[writer.run.id].floor - 1
    reader = await start_reading(paused_store, log, writer.run.id, cursor)
    published += writer.publish(4 * KEPT_EVENTS)
    await writer.save()
    paused_store.resume()
    published += await writer.end()
    assert await reader.read_to_end() == published[cursor:]
    await log.aclose()


async def test_events_that_are_trimmed_while_a_reader_reads_a_crashed_run_are_not_skipped(
    store: SqliteStore, paused_store: PausedStore, make: Make
) -> None:
    first = await Writer.begin(store, SqlEventLog(store, LocalBell()), make, ahead=5)
    log = SqlEventLog(paused_store, LocalBell())
    second = await first.restart(log)
    reader = await start_reading(paused_store, log, first.run.id)
    published = second.publish(3 * KEPT_EVENTS)
    await second.save()
    assert log._local[first.run.id].floor > 5
    paused_store.resume()
    published += await second.end()
    assert await reader.read_to_end() == published
    await log.aclose()


async def test_readers_that_waited_for_a_run_follow_it_into_memory(
    store: SqliteStore, make: Make
) -> None:
    first = await Writer.begin(store, SqlEventLog(store, LocalBell()), make)
    await first.store_message()
    log = SqlEventLog(store, LocalBell())
    reader = Reader(log, first.run.id)
    await reader.wait_for(2)
    second = await first.restart(log, ahead=9)
    published = second.publish(3)
    await reader.wait_for(published[-1].seq)
    assert reader.seen[2:] == published, "seen, and not durable"
    await reader.stop()
    await log.aclose()


async def test_a_reader_whose_position_is_trimmed_while_it_waits_continues_from_the_store(
    store: SqliteStore, make: Make
) -> None:
    log = SqlEventLog(store, LocalBell())
    writer = await Writer.begin(store, log, make)
    published = writer.publish(1)
    reader = Reader(log, writer.run.id)
    await reader.wait_for(1)
    # All in one iteration of the event loop: when the reader wakes up, its events have left the buffer already.
    published += writer.publish(5 * KEPT_EVENTS)
    live = log._local[writer.run.id]
    await writer.save()
    assert live.floor > 1
    published += await writer.end()
    assert await reader.read_to_end() == published


async def test_readers_of_a_run_without_a_process_get_the_error_when_the_store_is_closed(
    store: SqliteStore, make: Make
) -> None:
    writer = await Writer.begin(store, SqlEventLog(store, LocalBell()), make)
    log = SqlEventLog(store, LocalBell())
    readers = [Reader(log, writer.run.id) for _ in range(3)]
    published = await writer.store_message()
    for reader in readers:
        await reader.wait_for(published[-1].seq)
    await store.close()
    for reader in readers:
        with pytest.raises(StoreUnavailable):
            await reader.read_to_end()
    assert log._watch_tasks == set()


async def test_all_readers_of_a_remote_run_share_one_watch_and_it_ends_with_them(
    store: SqliteStore, make: Make
) -> None:
    writer = await Writer.begin(store, SqlEventLog(store, LocalBell()), make)
    log = SqlEventLog(store, LocalBell())
    readers = [Reader(log, writer.run.id) for _ in range(20)]
    published = await writer.store_message()
    for reader in readers:
        await reader.wait_for(published[-1].seq)
    (watch,) = log._watch_tasks
    for reader in readers:
        await reader.stop()
    await asyncio.wait_for(watch, WAIT_SECONDS)
    assert log._remote == {}
    published += await writer.end()
    assert isinstance((await read(log, writer.run.id))[-1].fact, RunEnded)
