"""A person's answer to held calls, and a cancel: whoever wins, the thread goes on."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from msgspec.structs import replace as replaced
from tests.doubles.model import call_answer
from tests.doubles.toolbox import HangingToolbox
from tests.support.engine_runs import make_paused_run, wait_until_set
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.cancellation import Action
from holdfast.core.messages import Decision, Outcome, Role
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.errors import Conflict
from holdfast.ports.services import Limits
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import agent_context, messages, runs
from holdfast.usecases.messages import ApprovalInput, NewSend

T = TypeVar("T")


async def answer(rig: Rig, agent: Agent, *, approve: bool = True) -> Run:
    decisions = (Decision(call_id="c1", approve=approve),)
    new = NewSend(agent_id=agent.id, input=(ApprovalInput(decisions=decisions),))
    return await messages.send(rig.services, ACTOR, new)


async def assert_goes_on(rig: Rig, agent: Agent) -> None:
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []
    async with rig.run_worker():
        assert (await rig.say(agent, "and now?")).ended.stop_reason is StopReason.END_TURN


async def test_an_answer_that_is_cancelled_before_its_turn_stands_and_nothing_is_started(
    rig: Rig,
) -> None:
    agent, asked = await make_paused_run(rig)
    run = await answer(rig, agent)
    ended = await runs.cancel(rig.services, ACTOR, run.id)
    assert ended.status is RunStatus.CANCELLED
    assert ended.cancellation is not None
    assert ended.cancellation.calls == {"c1": Outcome.NOT_STARTED, "c2": Outcome.DENIED}
    first = await runs.retrieve(rig.services, ACTOR, asked.id)
    assert first.status is RunStatus.ANSWERED
    (*_, response, results) = await rig.context(agent)
    assert response == replaced(run.input[0], position=response.position)
    assert [item.outcome for item in results.tool_returns] == [Outcome.NOT_STARTED, Outcome.DENIED]
    assert rig.toolbox.started == []
    await assert_goes_on(rig, agent)


async def test_an_answer_is_not_taken_back_when_it_waits_long(rig: Rig) -> None:
    """The held calls would be nobody's."""
    agent, _ = await make_paused_run(rig)
    impatient = Rig(rig.services.store, Limits(busy_wait_seconds=0))
    # Nobody claims it: this server has not registered.
    run = await answer(impatient, agent)
    await messages.wait_for_turn(impatient.services, run)
    assert (await runs.retrieve(impatient.services, ACTOR, run.id)).status is RunStatus.QUEUED


@pytest.mark.parametrize("approve", [True, False])
async def test_a_roll_back_of_an_answer_keeps_the_results_of_the_calls_it_answered(
    rig: Rig, approve: bool
) -> None:
    agent = await rig.make_agent(
        "ask_hang", "hang", rules=(rules.RequiresApproval(tool_name="ask_hang"),)
    )
    rig.model.script = [call_answer(("c1", "ask_hang"), ("c2", "hang"))]
    toolbox = HangingToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    async with rig.run_worker():
        await rig.say(agent)
        run = await answer(rig, agent, approve=approve)
        await wait_until_set(toolbox.hanging)
        await runs.cancel(rig.services, ACTOR, run.id, action=Action.ROLLBACK)
    roles = [row.role for row in await rig.context(agent)]
    assert roles[-3:] == [Role.APPROVAL, Role.APPROVAL, Role.TOOL]
    await assert_goes_on(rig, agent)


async def test_a_roll_back_of_a_run_that_waits_for_a_person_forgets_it(rig: Rig) -> None:
    agent, run = await make_paused_run(rig)
    await runs.cancel(rig.services, ACTOR, run.id, action=Action.ROLLBACK)
    assert [row.role for row in await rig.context(agent)] == [Role.SYSTEM]
    rows = await runs.list_messages(rig.services, ACTOR, run.id, Page(limit=10))
    assert len(rows) == 5
    await assert_goes_on(rig, agent)


async def test_an_agent_that_forgets_keeps_the_calls_that_are_being_answered(rig: Rig) -> None:
    agent = await rig.make_agent(
        "ask", rules=(rules.RequiresApproval(tool_name="ask"),), message_buffer_autoclear=True
    )
    rig.model.script = [call_answer(("c1", "ask"))]
    async with rig.run_worker():
        await rig.say(agent)
        ended = await rig.wait_for_end(await answer(rig, agent))
    assert ended.status is RunStatus.COMPLETED
    await assert_goes_on(rig, agent)


async def test_readers_see_the_end_of_a_run_that_is_cancelled_as_its_turn_comes(rig: Rig) -> None:
    """The worker finds it cancelled before the one who cancelled could say so."""
    agent = await rig.make_agent()
    run = await rig.submit(agent)
    waiting = asyncio.create_task(messages.wait(rig.services, run))
    await asyncio.sleep(0)
    silent = Rig(rig.services.store)
    await runs.cancel(silent.services, ACTOR, run.id)
    async with rig.run_worker():
        reply = await asyncio.wait_for(waiting, 20)
    assert reply.ended.status is RunStatus.CANCELLED


class HeldCommitStore:
    """Its next transaction is as good as committed when ``done`` is set, and committed when it is let."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.done, self.may_commit = threading.Event(), threading.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        def work_then_wait(tx: Transaction) -> T:
            result = work(tx)
            self.done.set()
            assert self.may_commit.wait(WAIT_SECONDS)
            return result

        return await self._store.write(work_then_wait)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def test_a_reset_drops_no_calls_that_are_being_answered(any_store: SqlStore) -> None:
    rig = Rig(any_store)
    agent, _ = await make_paused_run(rig)
    moment = HeldCommitStore(any_store)
    answering = asyncio.create_task(answer(Rig(moment), agent))
    await asyncio.to_thread(moment.done.wait, WAIT_SECONDS)
    resetting = asyncio.create_task(agent_context.reset(rig.services, ACTOR, agent.id))
    # Where there are several writers, it gets as far as it can.
    await asyncio.wait([resetting], timeout=0.2)
    moment.may_commit.set()
    run = await asyncio.wait_for(answering, WAIT_SECONDS)
    with pytest.raises(Conflict, match=f"busy with run {run.id}"):
        await asyncio.wait_for(resetting, WAIT_SECONDS)
    async with rig.run_worker():
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert sorted(rig.toolbox.started) == ["c1", "c2"]
    await assert_goes_on(rig, agent)
