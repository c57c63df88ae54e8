"""Interleavings that the simulation or a fault test has found, each by name: the meaning of a seed changes with the
simulation, these do not."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tests.doubles.model import text_answer
from tests.doubles.store import OutageStore
from tests.support.engine_runs import facts_of, wait_until_set
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.waiting import eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.cancellation import Cancellation
from holdfast.core.events import RunEnded
from holdfast.core.runs import Run, RunStatus
from holdfast.errors import StaleRun
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import messages
from holdfast.usecases.cancellation import record_cancel

T = TypeVar("T")


async def cancel_in_store(rig: Rig, store: Store, run: Run) -> None:
    """The transaction of a cancel whose request has not published the end yet."""
    receipt = Cancellation(requested_at=rig.services.clock.now(), requested_by=ACTOR.user_id)

    def work(tx: Transaction) -> None:
        stored = tx.runs.get(ACTOR.organization_id, run.id)
        record_cancel(tx, stored, receipt, rig.services.ids)

    await store.write(work)


async def test_a_run_that_was_cancelled_while_the_store_refused_its_claim(
    store: SqliteStore,
) -> None:
    """Seeds 2532, 5731 and 5996 of the simulation at c23e606; also seen with PostgreSQL stopped."""
    rig, outage = Rig(store), OutageStore(store)
    agent = await rig.make_agent()
    reachable = rig.services
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        rig.services = reachable
        outage.is_out = True
        run = await rig.submit(agent)
        waiting = asyncio.create_task(messages.wait(reachable, run))
        await wait_until_set(outage.failed)
        await cancel_in_store(rig, store, run)
        outage.is_out = False
        reply = await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert reply.ended.status is RunStatus.CANCELLED


class LostRaceStore:
    """The cancel of a queued run commits between read and write of the claim, as two connections of a pool can."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before_claim: Callable[[], asyncio.Task[None]] | None = None

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if self.before_claim is not None and "_save_loaded" in work.__qualname__:
            await self.before_claim()
            raise StaleRun("TEST: it is no longer queued")
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def test_a_background_stream_that_is_cancelled_while_its_run_is_claimed(
    store: SqliteStore,
) -> None:
    """On PostgreSQL such a stream was sometimes 200 and empty."""
    rig, racing = Rig(store), LostRaceStore(store)
    agent = await rig.make_agent()
    rig.services = replace(rig.services, store=racing)
    run = await rig.submit(agent)
    racing.before_claim = lambda: asyncio.create_task(cancel_in_store(rig, store, run))
    reading = asyncio.create_task(facts_of(rig, run))
    async with rig.run_worker():
        facts = await asyncio.wait_for(reading, WAIT_SECONDS)
    assert [type(fact) for fact in facts] == [RunEnded]


class SlowCheckpointStore:
    """Holds back the write of a checkpoint until the test releases it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_holding = asyncio.Event()
        self.released = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if "Runner._save." in work.__qualname__:
            self.is_holding.set()
            await self.released.wait()
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def test_a_server_that_stops_while_the_checkpoint_of_a_cancelled_run_is_written(
    store: SqliteStore,
) -> None:
    """Seeds 6200, 6787, 7669, 15218 and nine more at c23e606: the checkpoint lost its race against the cancel, its
    task was gone, and nobody retrieved the error. Now the task waits for the outcome and ends the run as cancelled."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    rig, slow = Rig(store), SlowCheckpointStore(store)
    agent = await rig.make_agent()
    rig.model.script = [text_answer("An answer.")]
    run = await rig.submit(agent)
    rig.services = replace(rig.services, store=slow)
    async with rig.run_worker():
        await wait_until_set(slow.is_holding)
        await cancel_in_store(rig, store, run)
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == run.id]
        releasing = asyncio.create_task(release_once_cancelled(task, slow))
    await releasing
    ended = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id))
    assert (ended.status, ended.progress.recoveries) == (RunStatus.CANCELLED, 0)
    assert [row.text for row in await rig.context(agent)][-1] == "An answer."
    del task, releasing
    gc.collect()
    assert unheard == []


async def release_once_cancelled(task: asyncio.Task[None], slow: SlowCheckpointStore) -> None:
    await eventually(lambda: task.cancelling() > 0)
    slow.released.set()
