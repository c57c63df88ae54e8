"""Interleavings of several servers that the simulation has found, each by name: the meaning of a seed changes with the
simulation, these do not."""

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from msgspec.structs import replace as replace_run
from tests.doubles.model import call_answer
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.engine_runs import wait_until_set
from tests.support.rig import ACTOR, Rig
from tests.support.servers import make_server
from tests.support.waiting import eventually

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.lease.heartbeat import HeartbeatLease
from holdfast.adapters.store.heartbeat_connection import HeartbeatConnection
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.events import CompactionBegan, Event
from holdfast.core.messages import CallState, ToolReturn
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claimant, ServerLoad
from holdfast.core.tools import Tool
from holdfast.core.turn import PlannedCall
from holdfast.engine.deployment_tasks import Takeover
from holdfast.engine.event_writer import EventWriter
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Store, Transaction
from holdfast.ports.telemetry import NO_TELEMETRY
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import runs

T = TypeVar("T")


class LosableLease(ExclusiveLease):
    """``lose`` ends it; ``renew`` gives the server another id, as a new registration does."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, make_server())

    def lose(self) -> None:
        self._claimant = None

    def renew(self) -> None:
        self._claimant = Claimant("server-of-a-new-registration")


class SharedLease(LosableLease):
    @property
    def is_exclusive(self) -> bool:
        return False


class NoConnection(HeartbeatConnection):
    """Of a server that never gets as far as a heartbeat."""

    def __init__(self) -> None:
        """Nothing is connected."""


class LosingToolbox(ScriptedToolbox):
    """The server is paused for longer than its lease as soon as the first tool has started."""

    def __init__(self, lease: LosableLease) -> None:
        super().__init__()
        self._lease = lease

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self._lease.lose()
        return await super().run(tool, planned, context)


async def test_no_further_tool_of_a_group_starts_after_the_lease_was_lost(
    store: SqliteStore,
) -> None:
    """Seed 182: the lease was only checked before the group, and tools that run side by side start a moment later."""
    rig, lease = Rig(store), LosableLease(store)
    toolbox = LosingToolbox(lease)
    dispatch = QueueDispatch(store, rig.services.bell, lease, rig.services.telemetry, max_runs=1)
    rig.services = replace(rig.services, lease=lease, toolbox=toolbox, dispatch=dispatch)
    rig.model.script = [call_answer(("c1", "fast_a"), ("c2", "fast_b"))]
    agent = await rig.make_agent("fast_a", "fast_b")
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(toolbox.running)
        await eventually(lambda: run.id not in {task.get_name() for task in asyncio.all_tasks()})
    assert toolbox.started == ["c1"]
    # As the write-ahead has it: whoever takes the run over tells the model that the outcome is unknown.
    calls = await rig.read(lambda tx: tx.calls.list_open(run.thread_id))
    assert [item.state for item in calls if item.call.id == "c2"] == [CallState.STARTED]


async def test_what_a_fenced_server_writes_twice_is_no_error_of_the_run(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 693: its successor had given the same event numbers. The row that exists already was found before the fence
    was, and the run was logged as interrupted and tried again."""
    caplog.set_level(logging.INFO, "holdfast")
    rig = Rig(store)
    rig.model.script = [call_answer(("c1", "roll"))]
    rig.model.gate.clear()
    agent = await rig.make_agent("roll")
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(rig.model.asked)
        await store.write(lambda tx: take_over(tx, run))
        rig.model.gate.set()
        await eventually(lambda: "run.fenced" in caplog.messages)
        assert "run.interrupted" not in caplog.messages
    assert rig.toolbox.started == []


def take_over(tx: Transaction, run: Run) -> None:
    """Another server claims the run and gives the next numbers."""
    owner_id = tx.runs.get(ACTOR.organization_id, run.id).owner_id or ""
    tx.queue.release(owner_id)
    tx.queue.claim_next(Claimant("server-of-the-successor"))
    tx.events.append(
        [Event(run.id, seq, CompactionBegan("an otid", "x", 1, 1)) for seq in range(1, 5)]
    )


async def test_a_run_is_not_executed_under_a_later_lease_than_the_one_that_claimed_it(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Others take the run over while the new lease is valid, so nothing would keep this server from starting a tool of
    it. Its readers go on with the store: in seed 800 they waited for a worker that had never begun."""
    rig, lease = Rig(store), LosableLease(store)
    dispatch = QueueDispatch(store, rig.services.bell, lease, NO_TELEMETRY, max_runs=1)
    rig.services = replace(rig.services, lease=lease, dispatch=dispatch)
    await lease.register()
    dispatch.start()
    run = await rig.submit(await rig.make_agent())
    assert lease.claimant is not None
    assert run.owner_id == lease.claimant.server_id
    lease.renew()
    reading = asyncio.create_task(rig.wait_for_end(run))
    async with rig.run_worker():
        await eventually(lambda: "run.fenced" in caplog.messages)
        assert rig.model.questions == []
        await runs.cancel(rig.services, ACTOR, run.id)
        assert (await reading).status is RunStatus.CANCELLED


class SlowOutageStore:
    """Holds back every write until the test releases it; then it fails."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_holding = asyncio.Event()
        self.released = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.shield(asyncio.create_task(self._fail()))

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...

    async def _fail(self) -> T:
        self.is_holding.set()
        await self.released.wait()
        raise StoreUnavailable("TEST: the store is out of reach")


async def test_a_server_that_stops_while_it_claims_a_run_learns_what_became_of_it(
    store: SqliteStore,
) -> None:
    """Seed 197: nobody retrieved the error. And a claim that landed after the runs were given back would have waited for
    the end of the lease."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    slow, lease = SlowOutageStore(store), ExclusiveLease(store, make_server())
    await lease.register()
    dispatch = QueueDispatch(slow, LocalBell(), lease, NO_TELEMETRY, max_runs=1)
    dispatch.start()
    taking = asyncio.create_task(dispatch.take())
    await wait_until_set(slow.is_holding)
    taking.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not taking.done()
    slow.released.set()
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert unheard == []


async def test_a_leader_that_is_replaced_while_it_looks_for_dead_servers_hears_the_error(
    store: SqliteStore,
) -> None:
    """Seeds 1571 and 2522: nobody retrieved it."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    rig, slow = Rig(store), SlowOutageStore(store)
    rig.services = replace(rig.services, store=slow, lease=SharedLease(store))
    working = asyncio.create_task(Takeover(rig.services).run())
    await wait_until_set(slow.is_holding)
    working.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not working.done()
    slow.released.set()
    await asyncio.wait([working])
    assert working.cancelled()
    assert unheard == []


async def test_events_of_a_run_that_is_stopped_twice_are_stored_or_their_error_is_heard(
    store: SqliteStore,
) -> None:
    """Seed 370: the lease was lost while the server was stopping. The second cancellation ended the wait for the write
    of the last events, and nobody retrieved its error."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    rig, slow = Rig(store), SlowOutageStore(store)
    run = await rig.submit(await rig.make_agent())
    rig.services = replace(rig.services, store=slow)
    writer = EventWriter(rig.services, replace_run(run, reserved_seq=10))
    await writer.write([CompactionBegan("an otid", "x", 1, 1)])
    closing = asyncio.create_task(writer.close())
    await wait_until_set(slow.is_holding)
    for _ in range(2):
        closing.cancel()
        await asyncio.sleep(0)
    slow.released.set()
    await asyncio.wait([closing])
    for _ in range(5):
        await asyncio.sleep(0)
    del writer, closing
    gc.collect()
    assert unheard == []


async def test_a_server_that_stops_while_it_registers_learns_what_became_of_it(
    store: SqliteStore,
) -> None:
    """Seed 2300: nobody retrieved the error."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    slow = SlowOutageStore(store)
    lease = HeartbeatLease(
        slow,
        NoConnection(),
        new_server=make_server,
        lease_seconds=10,
        read_load=ServerLoad,
        note_time=lambda _: None,
    )
    registering = asyncio.create_task(lease.register())
    await wait_until_set(slow.is_holding)
    registering.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not registering.done()
    slow.released.set()
    await asyncio.wait([registering])
    assert registering.cancelled()
    assert unheard == []
