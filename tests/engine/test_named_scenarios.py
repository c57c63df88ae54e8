"""Interleavings that the simulation or a fault test has found, each by name: the meaning of a seed changes with the
simulation, these do not. The seeds are those of the simulation at c23e606."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.doubles.store import OutageStore
from tests.support import engine_approvals
from tests.support.engine_runs import facts_of, make_talkative_agent, wait_until_set
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.waiting import eventually

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.events import RunEnded
from holdfast.core.runs import Run, RunStatus
from holdfast.errors import ModelRejectedRequest, StaleRun
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import compaction, messages
from holdfast.usecases.cancellation import record_cancel

T = TypeVar("T")
Submit = Callable[[Rig], Awaitable[Run]]


async def cancel_in_store(rig: Rig, store: Store, run: Run, action: Action = Action.KEEP) -> None:
    """The transaction of a cancel whose request has not published the end yet."""
    receipt = Cancellation(
        requested_at=rig.services.clock.now(), requested_by=ACTOR.user_id, action=action
    )

    def work(tx: Transaction) -> None:
        stored = tx.runs.get(ACTOR.organization_id, run.id)
        record_cancel(tx, stored, receipt, rig.services.ids)

    await store.write(work)


async def submit_turn(rig: Rig) -> Run:
    rig.model.script = [text_answer("An answer.")]
    return await rig.submit(await rig.make_agent())


async def submit_compaction(rig: Rig) -> Run:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
    run = await compaction.start(rig.services, ACTOR, agent.id)
    assert isinstance(run, Run)
    return run


async def submit_answer(rig: Rig) -> Run:
    """An answer to a held call."""
    async with rig.run_worker():
        agent = await engine_approvals.make_agent(rig)
        await engine_approvals.pause(rig, agent, ("c1", "ask"))
    return await engine_approvals.submit(rig, agent, engine_approvals.allow("c1"))


async def submit_tool_call(rig: Rig) -> Run:
    rig.model.script = [call_answer(("c1", "roll"))]
    return await rig.submit(await rig.make_agent("roll"))


async def submit_held_call(rig: Rig) -> Run:
    rig.model.script = [call_answer(("c1", "ask"))]
    return await rig.submit(await engine_approvals.make_agent(rig))


async def submit_failure(rig: Rig) -> Run:
    rig.model.script = [ModelRejectedRequest("TEST: no")]
    return await rig.submit(await rig.make_agent())


async def interrupt_tool(rig: Rig) -> Run:
    """A run whose server stops while its tool is running."""
    run = await submit_tool_call(rig)
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        await wait_until_set(rig.toolbox.running)
    return run


async def wait_for_reply(rig: Rig, run: Run) -> object:
    return (await messages.wait(rig.services, run)).ended


async def read_stream(rig: Rig, run: Run) -> object:
    facts = await facts_of(rig, run)
    return facts[-1] if facts else None


class CancelledClaimStore:
    """The cancel of a queued run commits while its first claim fails with this error."""

    def __init__(self, store: Store, error: Exception) -> None:
        self._store = store
        self._error = error
        self.cancel: Callable[[], Awaitable[None]] | None = None

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if self.cancel is not None and "_save_loaded" in work.__qualname__:
            cancel, self.cancel = self.cancel, None
            await cancel()
            raise self._error
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("submit", "read", "error"),
    [
        pytest.param(submit_compaction, wait_for_reply, RuntimeError("TEST: a bug"), id="2532"),
        pytest.param(submit_answer, wait_for_reply, RuntimeError("TEST: a bug"), id="5731"),
        pytest.param(submit_turn, read_stream, RuntimeError("TEST: a bug"), id="5996"),
        # On PostgreSQL, where a cancel can commit between read and write of the claim.
        pytest.param(submit_turn, read_stream, StaleRun("TEST: not queued"), id="empty stream"),
    ],
)
async def test_a_run_that_was_cancelled_while_its_claim_failed(
    store: SqliteStore,
    submit: Submit,
    read: Callable[[Rig, Run], Coroutine[Any, Any, object]],
    error: Exception,
) -> None:
    """The worker found the run over and closed its log without the end: a background stream was 200 and empty, and JSON
    callers were told that the server stops."""
    rig, claims = Rig(store), CancelledClaimStore(store, error)
    run = await submit(rig)
    claims.cancel = lambda: cancel_in_store(rig, store, run)
    rig.services = replace(rig.services, store=claims)
    reading = asyncio.create_task(read(rig, run))
    async with rig.run_worker():
        ended = await asyncio.wait_for(reading, WAIT_SECONDS)
    assert isinstance(ended, RunEnded)
    assert ended.status is RunStatus.CANCELLED


async def test_a_run_that_was_cancelled_while_the_store_refused_its_claim(
    store: SqliteStore,
) -> None:
    """The same with PostgreSQL stopped."""
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


class SlowCheckpointStore:
    """Holds back a checkpoint after an effect until the test releases it: the first one, or a later one."""

    def __init__(self, store: Store, skipped: int = 0) -> None:
        self._store = store
        self._skipped = skipped
        self.is_holding = asyncio.Event()
        self.released = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if "Runner._save." in work.__qualname__:
            self._skipped -= 1
            if self._skipped < 0:
                self.is_holding.set()
                await self.released.wait()
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("submit", "skipped", "action"),
    [
        pytest.param(submit_compaction, 0, Action.KEEP, id="6200: the end of a compaction"),
        pytest.param(submit_turn, 0, Action.KEEP, id="6787, 19203: the end of a turn"),
        pytest.param(submit_tool_call, 0, Action.KEEP, id="7669: the start of a tool"),
        pytest.param(interrupt_tool, 0, Action.ROLLBACK, id="15218: a recovery"),
        pytest.param(interrupt_tool, 0, Action.KEEP, id="15276: a recovery"),
        pytest.param(submit_tool_call, 1, Action.ROLLBACK, id="19989: the result of a tool"),
        pytest.param(submit_failure, 0, Action.KEEP, id="21195, 32017: a failure"),
        pytest.param(submit_held_call, 0, Action.ROLLBACK, id="38829: a pause"),
    ],
)
async def test_a_server_that_stops_while_a_checkpoint_of_a_cancelled_run_is_written(
    store: SqliteStore, submit: Submit, skipped: int, action: Action
) -> None:
    """The checkpoint lost its race against the cancel, its task was gone, and nobody retrieved the error. Now the task
    waits for the outcome and ends the run as cancelled."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    rig, slow = Rig(store), SlowCheckpointStore(store, skipped)
    run = await submit(rig)
    rig.services = replace(rig.services, store=slow)
    async with rig.run_worker():
        await wait_until_set(slow.is_holding)
        await cancel_in_store(rig, store, run, action)
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == run.id]
        releasing = asyncio.create_task(release_once_cancelled(task, slow))
    await releasing
    ended = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id))
    assert ended.status is RunStatus.CANCELLED
    rows = await rig.read(lambda tx: tx.messages.context(run.thread_id))
    assert_calls_answered(rows)
    # What the effect had done is kept, unless the caller wants none of it.
    assert any(row.run_id == run.id for row in rows) is (submit in KEPT and action is Action.KEEP)
    assert await rig.read(lambda tx: tx.calls.list_open(run.thread_id)) == []
    del task, releasing
    gc.collect()
    assert unheard == []


# A compaction that is cancelled leaves the context as it was, and a failure has no output.
KEPT = (submit_turn, submit_tool_call, interrupt_tool)


async def release_once_cancelled(task: asyncio.Task[None], slow: SlowCheckpointStore) -> None:
    await eventually(lambda: task.cancelling() > 0)
    slow.released.set()
