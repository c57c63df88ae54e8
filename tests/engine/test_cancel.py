"""A cancel in every state a run can be in: what it stops, what it leaves, and who wins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.doubles.model import HangingModel, ScriptedModel, call_answer, text_answer
from tests.doubles.toolbox import HangingToolbox
from tests.support.engine_runs import (
    assert_cancelled,
    facts_of,
    make_paused_run,
    steps_of,
    texts_in,
    use_model,
    wait_until_set,
)
from tests.support.rig import ACTOR, Rig

from holdfast.core.cancellation import DENIED_ON_CANCEL, Action, Cancellation
from holdfast.core.events import MessageStored, TextStreamed
from holdfast.core.messages import Message, Outcome, Role, Text
from holdfast.core.paging import Page
from holdfast.core.runs import RunStatus
from holdfast.core.steps import StepStatus
from holdfast.ports.model import ModelEvent, Question, TextDelta, ThinkingDelta, ToolCallDelta
from holdfast.ports.store import Transaction
from holdfast.usecases import cancellation, runs


async def test_a_run_is_cancelled_before_anybody_took_it(rig: Rig) -> None:
    agent = await rig.make_agent()
    run = await rig.submit(agent)
    await runs.cancel(rig.services, ACTOR, run.id, reason="changed my mind")
    async with rig.run_worker():
        ended = await rig.wait_for_end(run)
    assert ended.cancellation is not None
    assert (ended.cancellation.phase, ended.cancellation.reason) == ("queue", "changed my mind")
    assert await texts_in(rig, agent) == []
    assert rig.model.questions == []
    await assert_cancelled(rig, agent, run)


async def test_a_run_that_waits_for_its_turn_is_cancelled_at_once(rig: Rig) -> None:
    agent = await rig.make_agent()
    use_model(rig, HangingModel())
    async with rig.run_worker():
        first = await rig.submit(agent, "one")
        second = await rig.submit(agent, "two")
        await runs.cancel(rig.services, ACTOR, second.id)
        assert (await rig.wait_for_end(second)).status is RunStatus.CANCELLED
        await runs.cancel(rig.services, ACTOR, first.id)
        await rig.wait_for_end(first)
    await assert_cancelled(rig, agent, second)


async def test_before_the_first_token_nothing_is_stored(rig: Rig) -> None:
    agent = await rig.make_agent()
    model = HangingModel()
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id)
        await rig.wait_for_end(run)
        assert model.hung_up.is_set()
    assert await texts_in(rig, agent) == []
    (step,) = await steps_of(rig, run)
    assert step.status is StepStatus.CANCELLED
    await assert_cancelled(rig, agent, run)


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_the_partial_text_stays_in_the_history(rig: Rig, stream_tokens: bool) -> None:
    agent = await rig.make_agent()
    model = HangingModel(ThinkingDelta("hm"), TextDelta("Once upon"), TextDelta(" a time"))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent, "a story", stream_tokens=stream_tokens)
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id)
        told = await facts_of(rig, run)
    assert await texts_in(rig, agent) == [
        (Role.USER, "a story"),
        (Role.ASSISTANT, "Once upon a time"),
    ]
    row = (await rig.context(agent))[-1]
    if stream_tokens:
        shown = [fact for fact in told if isinstance(fact, TextStreamed)]
        assert {fact.message_id for fact in shown} == {row.id}
    else:
        stored = {fact.message.id for fact in told if isinstance(fact, MessageStored)}
        assert stored == {row.id}
    await assert_cancelled(rig, agent, run)


async def test_an_incomplete_call_is_dropped_and_a_complete_one_was_not_started(rig: Rig) -> None:
    agent = await rig.make_agent("roll", "flip")
    deltas = (ToolCallDelta("c1", "roll", "{}"), ToolCallDelta("c2", "flip", '{"ha'))
    model = HangingModel(*deltas)
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id)
        await rig.wait_for_end(run)
    (*_, answer, results) = await rig.context(agent)
    assert [call.id for call in answer.tool_calls] == ["c1"]
    assert [item.outcome for item in results.tool_returns] == [Outcome.NOT_STARTED]
    assert rig.toolbox.started == []
    await assert_cancelled(rig, agent, run)


async def test_each_call_gets_the_outcome_that_is_true_of_it(rig: Rig) -> None:
    agent = await rig.make_agent("slow_a", "slow_hang", "slow_c")
    toolbox = HangingToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "slow_a"), ("c2", "slow_hang"), ("c3", "slow_c"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(toolbox.hanging)
        await runs.cancel(rig.services, ACTOR, run.id)
        await rig.wait_for_end(run)
    results = (await rig.context(agent))[-1].tool_returns
    assert {item.call_id: item.outcome for item in results} == {
        "c1": Outcome.FINISHED,
        "c2": Outcome.KILLED,
        "c3": Outcome.NOT_STARTED,
    }
    assert toolbox.killed == ["c2"]
    ended = await assert_cancelled(rig, agent, run)
    assert ended.cancellation is not None
    assert ended.cancellation.phase == "tools"


async def test_tools_that_run_side_by_side_are_all_killed(rig: Rig) -> None:
    agent = await rig.make_agent("fast_hang_a", "fast_hang_b")
    toolbox = HangingToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "fast_hang_a"), ("c2", "fast_hang_b"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(toolbox.hanging)
        await runs.cancel(rig.services, ACTOR, run.id)
        await rig.wait_for_end(run)
    assert sorted(toolbox.killed) == ["c1", "c2"]
    await assert_cancelled(rig, agent, run)


async def test_a_cancel_that_falls_between_two_steps_wins_over_what_was_not_committed(
    rig: Rig,
) -> None:
    """The cancel is on record while the answer is there but not yet written: no other ending can win."""
    agent = await rig.make_agent()

    class CancellingModel(ScriptedModel):
        @asynccontextmanager
        async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
            async with super().ask(question) as events:
                yield events
            await rig.services.store.write(mark)

    def mark(tx: Transaction) -> None:
        """The cancel on record, without the bell: the engine finds out when it commits."""
        receipt = Cancellation(requested_at=run.created_at, requested_by=ACTOR.user_id)
        stored = tx.runs.get(ACTOR.organization_id, run.id)
        cancellation.record_cancel(tx, stored, receipt, rig.services.ids)

    use_model(rig, CancellingModel())
    rig.model.script = [text_answer("The end.")]
    run = await rig.submit(agent)
    async with rig.run_worker():
        await rig.wait_for_end(run)
    assert await texts_in(rig, agent) == [(Role.USER, "Hi"), (Role.ASSISTANT, "The end.")]
    await assert_cancelled(rig, agent, run)


async def test_cancelling_a_run_that_is_over_changes_nothing(rig: Rig) -> None:
    agent = await rig.make_agent()
    async with rig.run_worker():
        reply = await rig.say(agent)
        after = await runs.cancel(rig.services, ACTOR, reply.run.id)
    assert after.status is RunStatus.COMPLETED
    assert after.cancellation is None


async def test_cancelling_twice_is_harmless(rig: Rig) -> None:
    agent = await rig.make_agent()
    model = HangingModel(TextDelta("Well"))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        both = [runs.cancel(rig.services, ACTOR, run.id, reason=reason) for reason in ("a", "b")]
        await asyncio.gather(*both)
        await rig.wait_for_end(run)
    ended = await assert_cancelled(rig, agent, run)
    assert ended.cancellation is not None
    assert ended.cancellation.reason == "a"


async def test_cancelling_a_run_that_waits_for_a_person_denies_all_its_calls(rig: Rig) -> None:
    agent, run = await make_paused_run(rig)
    await runs.cancel(rig.services, ACTOR, run.id)
    (*_, response, results) = await rig.context(agent)
    assert [item.reason for item in response.decisions] == [DENIED_ON_CANCEL]
    assert [item.call_id for item in results.tool_returns] == ["c1", "c2"]
    assert all(DENIED_ON_CANCEL in item.text for item in results.tool_returns)
    assert {row.run_id for row in (response, results)} == {run.id}
    await assert_cancelled(rig, agent, run)


async def test_a_roll_back_makes_the_thread_forget_but_the_rows_stay(rig: Rig) -> None:
    agent = await rig.make_agent()
    model = HangingModel(TextDelta("Once upon"))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent, "a story")
        await wait_until_set(model.silent)
        await runs.cancel(rig.services, ACTOR, run.id, action=Action.ROLLBACK)
        await rig.wait_for_end(run)
    assert await texts_in(rig, agent) == []
    page = Page(limit=10)
    rows = await rig.read(lambda tx: tx.messages.list(ACTOR.organization_id, page, run_id=run.id))
    assert {_text(row) for row in rows} == {"a story", "Once upon"}
    await assert_cancelled(rig, agent, run)


def _text(row: Message) -> str:
    return "".join(part.text for part in row.content if isinstance(part, Text))


async def test_a_cancel_from_another_process_reaches_the_run(rig: Rig) -> None:
    """The other process shares the store and nothing else: no bell, no log, no queue."""
    elsewhere = Rig(rig.services.store)
    agent = await rig.make_agent()
    model = HangingModel(TextDelta("Once upon"))
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        seen = await runs.cancel(elsewhere.services, ACTOR, run.id, reason="from afar")
        assert seen.status is RunStatus.CANCELLED
        assert model.hung_up.is_set()
        await rig.wait_for_end(run)
    await assert_cancelled(rig, agent, run)
