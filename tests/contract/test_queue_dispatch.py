"""When the dispatch looks into the queue: at once if another server rings, and not for what it has claimed itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.support.servers import claim_of, make_server
from tests.support.values import Make, add_thread

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.dispatch import queue
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.threads import Thread
from holdfast.ports.bell import RUNS
from holdfast.ports.store import Store, Transaction
from holdfast.ports.telemetry import NO_TELEMETRY

T = TypeVar("T")

WAIT_SECONDS = 20


class CountingStore:
    """Counts the writes of the dispatch under test."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes = 0
        self.written = asyncio.Event()
        self.read = store.read

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self.writes += 1
        try:
            return await self._store.write(work)
        finally:
            self.written.set()


class Waiting:
    """A dispatch that has found an empty queue, and a worker that waits for a run."""

    def __init__(self, store: Store, thread: Thread) -> None:
        self.bell = LocalBell()
        self.store = CountingStore(store)
        self.lease = ExclusiveLease(store, make_server())
        counting: Any = self.store
        self.dispatch = QueueDispatch(counting, self.bell, self.lease, NO_TELEMETRY, max_runs=5)
        self.thread = thread

    async def begin(self) -> "asyncio.Task[Any]":
        await self.lease.register()
        self.dispatch.start()
        taking = asyncio.create_task(self.dispatch.take())
        await finish_soon(self.store.written.wait())
        return taking


async def finish_soon(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    return await asyncio.wait_for(work, WAIT_SECONDS)


@pytest.fixture
async def waiting(store: SqliteStore, make: Make, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    # Nothing here is found by looking now and then.
    monkeypatch.setattr(queue, "POLL_SECONDS", 3_600.0)
    return Waiting(store, await add_thread(store, make))


async def test_a_run_that_another_server_has_stored_is_claimed_when_it_rings(
    waiting: Waiting, store: SqliteStore, make: Make
) -> None:
    taking = await waiting.begin()
    run = make.run(waiting.thread)
    await store.write(lambda tx: tx.runs.add(run))

    waiting.bell.ring(RUNS)

    assert (await finish_soon(taking)).run_id == run.id


async def test_a_run_that_this_server_has_claimed_is_taken_without_a_look_into_the_queue(
    waiting: Waiting, store: SqliteStore, make: Make
) -> None:
    taking = await waiting.begin()
    writes = waiting.store.writes
    claimant = waiting.dispatch.claimant()
    run = await store.write(lambda tx: tx.runs.add(make.run(waiting.thread), claimant))

    assert waiting.dispatch.submit(run)

    assert await finish_soon(taking) == claim_of(run)
    assert waiting.store.writes == writes


async def test_a_ring_that_comes_with_a_run_of_this_server_is_not_forgotten(
    waiting: Waiting, store: SqliteStore, make: Make
) -> None:
    taking = await waiting.begin()
    claimant = waiting.dispatch.claimant()
    own = await store.write(lambda tx: tx.runs.add(make.run(waiting.thread), claimant))
    other_thread = await add_thread(store, make)
    other = await store.write(lambda tx: tx.runs.add(make.run(other_thread)))

    waiting.dispatch.submit(own)
    waiting.bell.ring(RUNS)

    taken = [await finish_soon(taking), await finish_soon(waiting.dispatch.take())]
    assert [claim.run_id for claim in taken] == [own.id, other.id]
