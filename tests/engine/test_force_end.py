"""A run that is given up takes its own calls with it, and nobody else's (wire-v1 §6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.doubles.model import ScriptedModel, call_answer, text_answer
from tests.support.engine_approvals import (
    ASK,
    allow,
    answer,
    assert_not_stuck,
    client_result,
    deny,
    make_agent,
    pause,
    submit,
)
from tests.support.engine_runs import (
    compact_thread,
    make_talkative_agent,
    use_model,
    wait_until_set,
)
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.servers import claim_of

from holdfast.core.agents import Agent
from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.messages import Decision, Message, Outcome, Role
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.core.servers import Claim
from holdfast.core.traces import CallType
from holdfast.engine.runner import Runner
from holdfast.ports.model import ModelEvent, Question
from holdfast.ports.store import Transaction
from holdfast.usecases import cancellation, compaction, messages, runs
from holdfast.usecases.messages import NewSend


class SlowSummariser(ScriptedModel):
    """Writes its summary when it is let; all else at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = asyncio.Event()
        self.may_write = asyncio.Event()

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        if question.call_type is CallType.SUMMARIZATION:
            self.writing.set()
            await self.may_write.wait()
        async with super().ask(question) as events:
            yield events


async def find_compaction_run(rig: Rig, agent: Agent) -> Run:
    query = RunQuery(page=Page(limit=10), agent_ids=(agent.id,))
    found = await rig.read(lambda tx: tx.runs.list(ACTOR.organization_id, query))
    return next(run for run in found if run.request.compaction is not None)


@asynccontextmanager
async def paused_during_summary(
    rig: Rig, *calls: tuple[str, str]
) -> AsyncIterator[tuple[Agent, SlowSummariser]]:
    """An agent that waits for a person while its context is being made smaller."""
    model = SlowSummariser()
    use_model(rig, model)
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, tools=("ask", "roll"), rules=(ASK,))
        await pause(rig, agent, *calls)
        compacting = asyncio.create_task(compact_thread(rig, agent))
        await wait_until_set(model.writing)
        yield agent, model
        model.may_write.set()
        await asyncio.wait_for(asyncio.gather(compacting, return_exceptions=True), WAIT_SECONDS)


def results(rows: list[Message]) -> dict[str, Outcome]:
    return {item.call_id: item.outcome for row in rows for item in row.tool_returns}


async def stored_claim(rig: Rig, run: Run) -> Claim:
    """The claim that would be the next: the run was given back when its worker stopped."""
    return claim_of(await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id)))


def decisions(rows: list[Message]) -> list[Decision]:
    return [item for row in rows for item in row.decisions]


async def test_a_compaction_that_is_given_up_leaves_the_calls_to_who_waits_for_them(
    rig: Rig,
) -> None:
    async with paused_during_summary(rig, ("c1", "ask")) as (agent, model):
        run = await find_compaction_run(rig, agent)
        await Runner(rig.services).force_end(claim_of(run), "TEST: stuck")
        assert (await rig.wait_for_end(run)).status is RunStatus.FAILED
        model.may_write.set()
        assert len(await rig.read(lambda tx: tx.calls.list_open(agent.id))) == 1
        assert (await answer(rig, agent, allow("c1"))).ended.stop_reason is StopReason.END_TURN
        await assert_not_stuck(rig, agent)
    assert rig.toolbox.started == ["c1"]


async def test_a_cancel_of_a_waiting_compaction_changes_nothing_of_the_agent(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, tools=("ask",), rules=(ASK,))
        asked = await pause(rig, agent, ("c1", "ask"))
    wish = await rig.read(lambda tx: compaction._plan(tx, rig.services, ACTOR, agent.id, None))
    assert isinstance(wish, NewSend)
    run = await messages.send(rig.services, ACTOR, wish)
    assert (await runs.cancel(rig.services, ACTOR, run.id)).status is RunStatus.CANCELLED
    stored = await rig.read(lambda tx: tx.agents.get(ACTOR.organization_id, agent.id))
    assert stored.last_stop_reason == StopReason.REQUIRES_APPROVAL
    assert (await runs.cancel(rig.services, ACTOR, asked.run.id)).status is RunStatus.CANCELLED
    stored = await rig.read(lambda tx: tx.agents.get(ACTOR.organization_id, agent.id))
    assert stored.last_stop_reason == StopReason.CANCELLED


async def test_an_answer_that_is_given_up_before_its_turn_leaves_no_call_open(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "ask"), ("c3", "look"), ("c4", "roll"))
        await rig.wait_for_end(await submit(rig, agent, client_result("c3"), partial=True))
    run = await submit(rig, agent, allow("c1"), deny("c2"), more="And hurry.")
    await Runner(rig.services).force_end(claim_of(run), "TEST: no claim works")
    rows = await rig.context(agent)
    assert results(rows) == {
        "c1": Outcome.NOT_STARTED,
        "c2": Outcome.DENIED,
        "c3": Outcome.FINISHED,
        "c4": Outcome.NOT_STARTED,
    }
    assert [item.call_id for item in decisions(rows)] == ["c3", "c1", "c2"]
    assert rows[-1].text == "And hurry."
    second = Rig(rig.services.store)
    async with second.run_worker():
        await assert_not_stuck(second, agent)
        assert await runs.list_cancellable(second.services, ACTOR, agent_id=agent.id) == []


@pytest.mark.parametrize("action", list(Action))
async def test_a_cancelled_answer_that_is_given_up_has_its_receipt(
    rig: Rig, action: Action
) -> None:
    agent = await make_agent(rig)
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"))
        run = await submit(rig, agent, allow("c1"))
        await wait_until_set(rig.toolbox.running)
    # The process has died meanwhile, and the next one finds the run as it cannot be carried on.

    def save_cancel(tx: Transaction) -> None:
        receipt = Cancellation(requested_at=run.created_at, requested_by="", action=action)
        stored = tx.runs.get(ACTOR.organization_id, run.id)
        cancellation.record_cancel(tx, stored, receipt, rig.services.ids)

    await rig.services.store.write(save_cancel)
    await Runner(rig.services).force_end(await stored_claim(rig, run), "TEST: no try works")
    ended = await runs.retrieve(rig.services, ACTOR, run.id)
    assert ended.cancellation is not None
    assert (ended.cancellation.phase, ended.cancellation.calls) == (
        "tools",
        {"c1": Outcome.UNKNOWN},
    )
    rows = await rig.context(agent)
    assert [row.role for row in rows[-3:]] == [Role.APPROVAL, Role.APPROVAL, Role.TOOL]
    assert [item.call_id for item in decisions(rows)] == ["c1"]


async def test_a_roll_back_of_a_run_that_is_given_up_forgets_what_it_said(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [text_answer(), call_answer(("c1", "roll"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        await rig.say(agent)
        before = await rig.context(agent)
        run = await rig.submit(agent)
        await wait_until_set(rig.toolbox.running)

    def save_cancel(tx: Transaction) -> None:
        receipt = Cancellation(requested_at=run.created_at, requested_by="", action=Action.ROLLBACK)
        stored = tx.runs.get(ACTOR.organization_id, run.id)
        cancellation.record_cancel(tx, stored, receipt, rig.services.ids)

    await rig.services.store.write(save_cancel)
    await Runner(rig.services).force_end(await stored_claim(rig, run), "TEST: no try works")
    assert await rig.context(agent) == before
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []


async def test_what_was_answered_stands_when_its_run_is_cancelled_before_its_turn(
    rig: Rig,
) -> None:
    calls = (("c1", "look"), ("c2", "ask"), ("c3", "ask"), ("c4", "ask"))
    async with paused_during_summary(rig, *calls) as (agent, _):
        run = await submit(rig, agent, client_result("c1"), deny("c2"), allow("c3"), partial=True)
        run = await runs.cancel(rig.services, ACTOR, run.id)
        rows = await rig.context(agent)
        made = {item.call_id: (item.reason, item.decided_by_id) for item in decisions(rows)}
        assert made["c2"] == ("no", ACTOR.user_id)
        assert made["c4"][1] is None
        assert [row.tool_returns[0].text for row in rows if row.tool_returns] == ["mine"]
        assert run.cancellation is not None
        assert (
            run.cancellation.calls
            == results(rows)
            == {
                "c1": Outcome.FINISHED,
                "c2": Outcome.DENIED,
                "c3": Outcome.NOT_STARTED,
                "c4": Outcome.DENIED,
            }
        )
    async with rig.run_worker():
        await assert_not_stuck(rig, agent)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_cancel_of_the_run_that_asked_ends_what_still_waits_for_a_person(
    rig: Rig, queued: bool
) -> None:
    async with paused_during_summary(rig, ("c1", "ask"), ("c2", "ask"), ("c3", "ask")) as (
        agent,
        model,
    ):
        open_calls = await rig.read(lambda tx: tx.calls.list_open(agent.id))
        request_id = open_calls[0].message_id
        row = await rig.read(lambda tx: tx.messages.get(ACTOR.organization_id, request_id))
        waiting = await submit(rig, agent, allow("c1"), partial=True)
        if not queued:
            model.may_write.set()
            await rig.wait_for_end(waiting)
            waiting = await rig.wait_for_end(await submit(rig, agent, deny("c2"), partial=True))
        assert row.run_id is not None
        done = await runs.cancel_all(rig.services, ACTOR, [row.run_id], agent_id=agent.id)
        assert done == {row.run_id: True}
        ended = await runs.retrieve(rig.services, ACTOR, waiting.id)
        assert ended.status is RunStatus.CANCELLED
        rows = await rig.context(agent)
        assert results(rows)["c1"] is Outcome.NOT_STARTED
        model.may_write.set()
        await assert_not_stuck(rig, agent)


async def test_a_cancel_of_the_run_that_asked_leaves_alone_what_carries_out_the_whole_answer(
    rig: Rig,
) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        asked = await pause(rig, agent, ("c1", "ask"))
    run = await submit(rig, agent, allow("c1"))
    await runs.cancel(rig.services, ACTOR, asked.run.id)
    async with rig.run_worker():
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert rig.toolbox.started == ["c1"]


async def test_to_delete_a_run_that_was_answered_ends_nothing(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        asked = await pause(rig, agent, ("c1", "ask"), ("c2", "ask"))
        waiting = await rig.wait_for_end(await submit(rig, agent, allow("c1"), partial=True))
        await runs.remove(rig.services, ACTOR, asked.run.id)
        assert (await runs.retrieve(rig.services, ACTOR, waiting.id)).status is RunStatus.PAUSED
        assert (await answer(rig, agent, allow("c2"))).ended.stop_reason is StopReason.END_TURN
