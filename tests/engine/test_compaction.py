"""Making a context smaller: what the model is shown afterwards, and what a failure, a cancel or a crash leaves."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.doubles.model import HangingModel, ScriptedModel, call_answer, text_answer
from tests.doubles.store import CrashingStore
from tests.support.engine_runs import (
    assert_cancelled,
    assert_sound,
    compact_thread,
    facts_of,
    make_talkative_agent,
    run_until_crash,
    steps_of,
    use_model,
    wait_until_set,
)
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import summaries
from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.events import CompactionBegan, MessageStored, RunEnded
from holdfast.core.messages import Decision, Message, Role, Text
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunFailure, RunQuery, RunStatus, StopReason, Usage
from holdfast.core.steps import COMPACTION, Step, StepStatus
from holdfast.core.traces import CallType
from holdfast.errors import (
    CallerError,
    Conflict,
    ContextWindowExceeded,
    ModelAnswerEmpty,
    ModelAuthFailed,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejectedRequest,
)
from holdfast.ports.model import Answer, ModelEvent, Question, TextDelta
from holdfast.ports.services import Limits
from holdfast.ports.store import Transaction
from holdfast.testing import FakeClock
from holdfast.usecases import cancellation, messages, runs
from holdfast.usecases.compaction import Compaction
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput, NewSend

ALL = {"mode": "all"}
TOO_LONG = ContextWindowExceeded("11 tokens > 10 maximum")


def nearly_full_answer(text: str = "Hello", tokens: int = 127_000) -> Answer:
    """An answer after which the window is nearly full."""
    return replace(text_answer(text), usage=Usage(tokens, 5))


def shape(rows: Sequence[Message]) -> list[str]:
    """The rows as a reader wants them: roles and words."""
    return [summaries.unpack(row).summary if row.role is Role.SUMMARY else row.text for row in rows]


async def context_lines(rig: Rig, agent: Agent) -> list[str]:
    return shape((await rig.context(agent))[1:])


def summary_questions(rig: Rig) -> list[Question]:
    return [asked for asked in rig.model.questions if asked.call_type is CallType.SUMMARIZATION]


async def steps(rig: Rig, run: Run) -> list[Step]:
    return sorted(await steps_of(rig, run), key=lambda step: step.created_at)


async def test_a_question_that_does_not_fit_is_made_smaller_and_asked_again(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [TOO_LONG, text_answer("They talked."), text_answer("Here I am.")]
        reply = await rig.say(agent, "and now?")
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert await context_lines(rig, agent) == ["They talked.", "and now?", "Here I am."]
    summary, again = rig.model.questions[-2:]
    assert summary.call_type is CallType.SUMMARIZATION
    assert "user: question 0" in summary.history[-1].text
    assert "and now?" not in summary.history[-1].text
    assert [row.role for row in again.history] == [Role.SYSTEM, Role.SUMMARY, Role.USER]
    # Nothing is lost: what left the context stays in the history.
    rows = await rig.read(lambda tx: tx.messages.count(agent.id))
    assert rows == 1 + 6 + 1 + 2


async def test_each_question_to_a_provider_is_a_step_and_all_of_them_are_paid_for(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [TOO_LONG, text_answer("They talked."), text_answer("Here I am.")]
        reply = await rig.say(agent, "and now?")
        refused, summary, answered = await steps(rig, reply.run)
    assert refused.failure is not None
    assert (refused.status, refused.failure.kind) == (
        StepStatus.FAILED,
        "llm_context_window_exceeded",
    )
    assert (summary.status, summary.origin, summary.usage) == (
        StepStatus.SUCCESS,
        "compaction",
        Usage(10, 5),
    )
    assert (answered.status, answered.origin) == (StepStatus.SUCCESS, None)
    assert reply.ended.usage.total_tokens == 30
    # Only answers count: a summary takes no step of the budget.
    assert reply.ended.step_count == 1


async def test_a_question_that_never_fits_is_given_up_after_three_times(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, rounds=8)
        agent = await save_compaction_settings(rig, agent, mode="sliding_window")
        rig.model.otherwise = refuses_answers
        reply = await rig.say(agent, "and now?")
        run = await rig.wait_for_end(reply.run)
        assert run.failure is not None
        assert (run.stop_reason, run.failure.kind) == (
            StopReason.LLM_API_ERROR,
            "llm_context_window_exceeded",
        )
        # The first one spares the end of the talk, the second one nothing; then there is nothing to spare.
        assert len(summary_questions(rig)) == 2
        assert await context_lines(rig, agent) == ["Short."]
        rig.model.otherwise = lambda _: text_answer()
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


def refuses_answers(question: Question) -> Answer:
    if question.call_type is CallType.SUMMARIZATION:
        return text_answer("Short.")
    raise TOO_LONG


async def save_compaction_settings(rig: Rig, agent: Agent, **settings: Any) -> Agent:
    agent = replace(agent, compaction_settings=settings)
    await rig.services.store.write(lambda tx: tx.agents.save(agent))
    return agent


async def test_a_message_that_is_too_long_by_itself_is_refused_as_the_provider_did(
    rig: Rig,
) -> None:
    agent = await rig.make_agent()
    rig.model.script = [TOO_LONG]
    async with rig.run_worker():
        reply = await rig.say(agent, "very long")
    assert reply.ended.failure == RunFailure(TOO_LONG.kind, TOO_LONG.summary, TOO_LONG.detail)
    assert summary_questions(rig) == []


async def test_a_system_prompt_that_is_too_large_is_reported_as_such(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        await replace_system_text(rig, agent, "word " * 200_000)
        before = await rig.context(agent)
        rig.model.script = [TOO_LONG]
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert reply.ended.failure is not None
    assert reply.ended.failure.kind == "context_window_overflow_in_system_prompt"
    assert reply.ended.failure.message.startswith(
        "Compaction failed because the system prompt is too large"
    )
    assert await rig.context(agent) == before
    assert summary_questions(rig) == []


async def replace_system_text(rig: Rig, agent: Agent, text: str) -> None:
    system = replace((await rig.context(agent))[0], content=(Text(text),))
    await rig.services.store.write(lambda tx: tx.messages.rewrite(system))


async def test_an_answer_that_fills_the_window_is_followed_by_a_compaction(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [nearly_full_answer("The last one."), text_answer("They talked.")]
        reply = await rig.say(agent, "and now?")
        answered, summary = await steps(rig, reply.run)
        system = (await rig.context(agent))[0]
    assert (reply.ended.stop_reason, reply.ended.step_count) == (StopReason.END_TURN, 1)
    assert await context_lines(rig, agent) == ["They talked."]
    assert answered.stop_reason is StopReason.END_TURN
    assert summary.origin == "compaction"
    # Recompiled: it names the agent now, which the one that was made by hand does not.
    assert f"- AGENT_ID: {agent.id}" in system.text
    assert 0 < reply.ended.context_tokens < 127_000
    assert [row.role for row in reply.messages] == [Role.ASSISTANT]


async def test_between_two_steps_the_model_goes_on_from_the_summary(rig: Rig) -> None:
    agent = await rig.make_agent("roll", compaction_settings=ALL)
    rolls = replace(call_answer(("c1", "roll")), usage=Usage(127_000, 5))
    rig.model.script = [rolls, text_answer("A die was rolled."), text_answer("Done.")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert await context_lines(rig, agent) == ["A die was rolled.", "Done."]
    assert "roll finished: done" in summary_questions(rig)[0].history[-1].text


async def test_a_run_still_ends_as_it_was_going_to(rig: Rig) -> None:
    agent = await rig.make_agent("roll", compaction_settings=ALL, rules=(EXIT,))
    rolls = replace(call_answer(("c1", "roll")), usage=Usage(127_000, 5))
    rig.model.script = [rolls, text_answer("A die was rolled.")]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.TOOL_RULE
    assert len(rig.model.questions) == 2


EXIT = rules.ExitLoop(tool_name="roll")


@pytest.mark.parametrize("mode", ["all", "sliding_window"])
async def test_what_is_said_with_an_answer_stays_in_view_until_it_is_answered(
    rig: Rig, mode: str
) -> None:
    agent = await rig.make_agent("ask", compaction_settings={"mode": mode}, rules=(HELD,))
    asks = replace(call_answer(("c1", "ask")), usage=Usage(127_000, 5))
    rig.model.script = [asks, text_answer("They asked."), text_answer("Done.")]
    async with rig.run_worker():
        await rig.say(agent)
        reply = await approve_and_wait(rig, agent, "c1", more="And hurry.")
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert shape(rig.model.questions[-1].history[1:]) == ["They asked.", "And hurry."]
    assert await context_lines(rig, agent) == ["They asked.", "And hurry.", "Done."]


async def test_what_is_said_with_an_answer_stays_however_often_the_question_is_refused(
    rig: Rig,
) -> None:
    agent = await rig.make_agent("ask", compaction_settings=ALL, rules=(HELD,))
    rig.model.script = [call_answer(("c1", "ask")), TOO_LONG, text_answer("They asked."), TOO_LONG]
    async with rig.run_worker():
        await rig.say(agent)
        reply = await approve_and_wait(rig, agent, "c1", more="And hurry.")
    # There is nothing more to hide, so the provider's refusal stands.
    assert reply.ended.failure is not None
    assert reply.ended.failure.kind == TOO_LONG.kind
    assert await context_lines(rig, agent) == ["They asked.", "And hurry."]


async def test_a_paused_thread_is_made_smaller_when_it_goes_on(rig: Rig) -> None:
    agent = await rig.make_agent("ask", compaction_settings=ALL, rules=(HELD,))
    asks = replace(call_answer(("c1", "ask")), usage=Usage(127_000, 5))
    rig.model.script = [asks, text_answer("They asked."), text_answer("Done.")]
    async with rig.run_worker():
        assert (await rig.say(agent)).ended.stop_reason is StopReason.REQUIRES_APPROVAL
        assert summary_questions(rig) == []
        reply = await approve_and_wait(rig, agent, "c1")
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert await context_lines(rig, agent) == ["They asked.", "Done."]


HELD = rules.RequiresApproval(tool_name="ask")


async def approve_and_wait(rig: Rig, agent: Agent, call_id: str, more: str = "") -> messages.Reply:
    items: list[Input] = [ApprovalInput(decisions=(Decision(call_id, approve=True),))]
    if more:
        items.append(MessageInput(role=Role.USER, content=(Text(more),)))
    new = NewSend(agent_id=agent.id, input=tuple(items))
    run = await messages.send(rig.services, ACTOR, new)
    return await asyncio.wait_for(messages.wait(rig.services, run), WAIT_SECONDS)


async def test_the_next_compaction_starts_from_the_last_summary(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [nearly_full_answer(), text_answer("They talked.")]
        await rig.say(agent, "one")
        rig.model.script = [nearly_full_answer(), text_answer("And went on.")]
        await rig.say(agent, "two")
    assert await context_lines(rig, agent) == ["And went on."]
    last = summary_questions(rig)[-1].history[-1].text
    assert "summary of what was said before: They talked." in last


# -- who is told -----------------------------------------------------------------------------


@pytest.mark.parametrize("stream_tokens", [True, False])
async def test_a_compaction_is_reported_only_to_clients_that_requested_it(
    rig: Rig, stream_tokens: bool
) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        for wanted in (True, False):
            rig.model.script = [nearly_full_answer(), text_answer("They talked.")]
            run = await rig.submit(
                agent, include_compaction_messages=wanted, stream_tokens=stream_tokens
            )
            told = await facts_of(rig, run)
            begun = [fact for fact in told if isinstance(fact, CompactionBegan)]
            rows = [fact.message for fact in told if isinstance(fact, MessageStored)]
            summed = [row for row in rows if row.role is Role.SUMMARY]
            assert (len(begun), len(summed)) == ((1, 1) if wanted else (0, 0))
            if wanted:
                assert (begun[0].trigger, begun[0].context_tokens, begun[0].context_window) == (
                    "post_step_context_check",
                    127_005,
                    128_000,
                )
                stats = summaries.unpack(summed[0]).compaction_stats
                assert stats is not None
                assert (stats.messages_count_before, stats.messages_count_after) == (9, 2)


# -- a summariser that fails -----------------------------------------------------------------

TEMPORARY = (ModelRateLimited("slow"), ModelOverloaded("full"), ModelAuthFailed("key"))
HOPELESS = (ModelRejectedRequest("no"), text_answer(""), TOO_LONG, ModelAnswerEmpty())


@pytest.mark.parametrize("failure", TEMPORARY, ids=lambda error: type(error).__name__)
async def test_a_transient_failure_is_reported_and_changes_nothing(
    rig: Rig, failure: Exception
) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        before = await rig.context(agent)
        rig.model.script = [TOO_LONG, failure]
        reply = await rig.say(agent, "and now?")
        assert reply.ended.failure is not None
        assert reply.ended.failure.kind == getattr(failure, "kind", None)
        assert await rig.context(agent) == before
        rig.model.script = [TOO_LONG, text_answer("They talked."), text_answer("Here I am.")]
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("failure", HOPELESS, ids=["rejected", "empty", "too long", "silent"])
async def test_a_failure_that_stays_does_not_keep_the_agent_from_answering(
    rig: Rig, failure: Answer | Exception
) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        tries = 3 if failure is TOO_LONG else 1
        rig.model.script = [TOO_LONG, *[failure] * tries, text_answer("Here I am.")]
        reply = await rig.say(agent, "and now?")
        (_, summary, _) = await steps(rig, reply.run)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert (await context_lines(rig, agent))[0].startswith("(No summary could be written.")
    assert summary.status is StepStatus.FAILED


async def test_a_window_that_is_only_nearly_full_can_wait_for_a_summary(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [nearly_full_answer("All is well."), ModelRejectedRequest("no")]
        reply = await rig.say(agent)
        (_, summary) = await steps(rig, reply.run)
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert len(await rig.context(agent)) == 9
    assert summary.status is StepStatus.FAILED
    assert summary.failure is not None
    assert (summary.failure.kind, summary.origin) == ("llm_bad_request", "compaction")


async def test_the_agents_own_model_steps_in_for_a_summariser_that_fails(rig: Rig) -> None:
    # The rig knows the guide alone, so another model of its provider is not to be had at all.
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        agent = await save_compaction_settings(rig, agent, mode="all", model="openai/gpt-5-mini")
        rig.model.script = [nearly_full_answer(), text_answer("They talked.")]
        reply = await rig.say(agent)
        (_, summary) = await steps(rig, reply.run)
    assert summary.model.handle == "holdfast/guide"
    assert await context_lines(rig, agent) == ["They talked."]


async def test_whoever_steps_in_may_fail_for_a_moment_too(rig: Rig) -> None:
    """The tries of the one before are its own."""
    clock, full = FakeClock(), ModelOverloaded("TEST: full", transient=True)
    settings = ProviderSettings(
        {"openai": {"api_key": "sk-test", "base_url": "http://127.0.0.1:1/v1"}}
    )
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
    agent = await save_compaction_settings(rig, agent, mode="all", model="openai/gpt-5-mini")
    rig.services = dataclasses.replace(
        rig.services,
        clock=clock,
        catalogue=ProviderCatalogue(settings),
        limits=Limits(model_attempts=2),
    )
    async with rig.run_worker():
        rig.model.script = [nearly_full_answer(), full, full, full, text_answer("They talked.")]
        run = await rig.submit(agent)
        for number in (1, 2):
            clock.advance(await clock.wait_for_sleep(number))
        await rig.wait_for_end(run)
    # Both steps began at the same moment of this clock.
    (summary,) = [step for step in await steps(rig, run) if step.origin == COMPACTION]
    assert (summary.model.handle, summary.status) == ("holdfast/guide", StepStatus.SUCCESS)
    assert [item.number for item in summary.attempts] == [1, 2, 3]
    assert [item.wait_seconds is None for item in summary.attempts] == [False, True, False]
    assert await context_lines(rig, agent) == ["They talked."]


async def test_a_transcript_that_is_too_long_for_its_reader_is_shortened(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await rig.make_agent(compaction_settings=ALL)
        rig.model.otherwise = lambda _: text_answer("long " * 400)
        for _ in range(4):
            await rig.say(agent)
        agent = replace(agent, model=replace(agent.model, context_window=1_000))
        await rig.services.store.write(lambda tx: tx.agents.save(agent))
        rig.model.script = [nearly_full_answer(tokens=950), TOO_LONG, text_answer()]
        await rig.say(agent)
    lengths = [len(asked.history[-1].text) for asked in summary_questions(rig)]
    assert len(lengths) == 2
    # 70 % of the window at four characters per token, then half of that.
    assert 3_000 > lengths[0] > 2_000 > lengths[1]


# -- stopped in the middle -------------------------------------------------------------------


class Summariser(ScriptedModel):
    """Answers by script, and summarises as the test wants it."""

    def __init__(self, summarise: Callable[[], AsyncIterator[ModelEvent]]) -> None:
        super().__init__()
        self._summarise = summarise

    @asynccontextmanager
    async def ask(self, question: Question) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        if question.call_type is CallType.SUMMARIZATION:
            yield self._summarise()
        else:
            async with super().ask(question) as events:
                yield events


@pytest.mark.parametrize("heard", [(), (TextDelta("They "),)], ids=["before", "in the middle"])
@pytest.mark.parametrize("trigger", ["overflow", "full", "requested"])
async def test_a_cancel_stops_the_summariser_and_leaves_the_context_as_it_was(
    rig: Rig, heard: tuple[ModelEvent, ...], trigger: str
) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
    hanging = HangingModel(*heard)
    use_model(rig, Summariser(hanging.stream))
    async with rig.run_worker():
        before = len(await rig.context(agent))
        rig.model.script = [
            TOO_LONG if trigger == "overflow" else nearly_full_answer("All is well.")
        ]
        if trigger == "requested":
            waiting = asyncio.create_task(compact_thread(rig, agent))
            await wait_until_set(hanging.silent)
            (run,) = await rig.read(lambda tx: list(tx.runs.list_live()))
        else:
            run = await rig.submit(agent)
            await wait_until_set(hanging.silent)
        stopped = await runs.cancel(rig.services, ACTOR, run.id)
        assert stopped.status is RunStatus.CANCELLED
        if trigger == "requested":
            with pytest.raises(Conflict, match="nothing was changed"):
                await waiting
        (pending, *_) = [s for s in await steps(rig, run) if s.origin == "compaction"]
    assert pending.status is StepStatus.CANCELLED
    assert stopped.cancellation is not None
    assert stopped.cancellation.phase == "compaction"
    rows = await rig.context(agent)
    assert len(rows) == before + (2 if trigger == "full" else 0)
    assert all(row.role is not Role.SUMMARY for row in rows)
    if trigger != "requested":
        await assert_cancelled(rig, agent, run)


async def test_a_cancel_that_comes_just_before_the_commit_wins(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)

    async def summarise() -> AsyncIterator[ModelEvent]:
        (run,) = await rig.read(lambda tx: list(tx.runs.list_live()))
        # On record, and nobody has heard of it yet.
        await rig.services.store.write(lambda tx: save_cancel(tx, run))
        yield text_answer("They talked.")

    def save_cancel(tx: Transaction, run: Run) -> None:
        now = rig.services.clock.now()
        receipt = Cancellation(requested_at=now, requested_by=ACTOR.user_id)
        held = tx.runs.get_for_update(ACTOR.organization_id, run.id)
        cancellation.record_cancel(tx, held, receipt, rig.services.ids)

    use_model(rig, Summariser(summarise))
    async with rig.run_worker():
        rig.model.script = [TOO_LONG]
        run = await rig.submit(agent)
        ended = await rig.wait_for_end(run)
    assert ended.status is RunStatus.CANCELLED
    assert len(await rig.context(agent)) == 7
    await assert_cancelled(rig, agent, run)


async def test_a_run_that_is_rolled_back_leaves_the_summary(rig: Rig) -> None:
    """What the summary tells of was said by others too, and is shown nowhere else."""
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
    model = ScriptedModel()
    model.script = [TOO_LONG, text_answer("They talked."), (asyncio.Event(),)]
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent, "forget this")
        async with asyncio.timeout(WAIT_SECONDS):
            while len(model.questions) < 3:
                model.asked.clear()
                await model.asked.wait()
        await runs.cancel(rig.services, ACTOR, run.id, action=Action.ROLLBACK)
        await rig.wait_for_end(run)
    assert await context_lines(rig, agent) == ["They talked."]


# Claim, refusal, summary and answer; or claim, answer, and the summary with the end.
WRITES = [("overflow", at) for at in range(4)] + [("full", at) for at in range(3)]


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize(("trigger", "at"), WRITES)
async def test_a_crash_at_any_write_leaves_one_summary_and_a_run_that_ends(
    store: SqliteStore, at: int, after_commit: bool, trigger: str
) -> None:
    first, second = Rig(store), Rig(store)
    async with first.run_worker():
        agent = await make_talkative_agent(first)
    first.model.otherwise = second.model.otherwise = (
        reject_long_history if trigger == "overflow" else answer_nearly_full
    )
    run = await run_until_crash(first, agent, CrashingStore(store, at, after_commit=after_commit))
    async with second.run_worker():
        ended = await second.wait_for_end(run)
        assert (ended.status, ended.stop_reason) == (RunStatus.COMPLETED, StopReason.END_TURN)
        await assert_sound(second, agent, run)
        rows = await second.context(agent)
        assert [row.role for row in rows].count(Role.SUMMARY) == 1
        assert shape(rows[1:])[0] == "They talked."
        assert_calls_answered(rows)


def reject_long_history(question: Question) -> Answer:
    """Takes no more than a few rows."""
    if question.call_type is CallType.SUMMARIZATION:
        return text_answer("They talked.")
    if len(question.history) > 5:
        raise TOO_LONG
    return text_answer("Here I am.")


def answer_nearly_full(question: Question) -> Answer:
    return (
        text_answer("They talked.")
        if question.call_type is CallType.SUMMARIZATION
        else nearly_full_answer()
    )


# -- on demand -------------------------------------------------------------------------------


async def test_a_thread_is_made_smaller_on_demand(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [text_answer(" They talked.\n")]
        assert await compact_thread(rig, agent) == Compaction("They talked.", 7, 2)
        # There is nothing left to do, and nobody is asked.
        assert await compact_thread(rig, agent) == Compaction("They talked.", 2, 2)
        run = await load_newest_run(rig)
        (step,) = await steps(rig, run)
        stored = await rig.read(lambda tx: tx.agents.get(ACTOR.organization_id, agent.id))
    assert (run.kind, run.status, run.usage.total_tokens) == (
        "compaction",
        RunStatus.COMPLETED,
        15,
    )
    assert (step.origin, step.usage) == ("compaction", Usage(10, 5))
    assert stored.last_stop_reason == StopReason.END_TURN
    assert rig.model.script == []


async def load_newest_run(rig: Rig) -> Run:
    query = RunQuery(page=Page(limit=50))
    found = await rig.read(lambda tx: tx.runs.list(ACTOR.organization_id, query))
    return max(found, key=lambda run: run.created_at)


async def test_a_wish_goes_over_the_agents_own_settings(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, rounds=5)
        rig.model.script = [text_answer("abcdefghij")]
        done = await compact_thread(
            rig, agent, mode="sliding_window", clip_chars=5, prompt="Be brief.",
            prompt_acknowledgement=True,
        )  # fmt: skip
        (asked,) = summary_questions(rig)
    assert done == Compaction("abcde…", 11, 7)
    assert (await context_lines(rig, agent))[1] == "answer 2"
    assert [row.role for row in asked.history] == [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
    ]
    assert asked.history[0].text == "Be brief."


@pytest.mark.parametrize("mode", ["self_compact_all", "self_compact_sliding_window"])
async def test_the_agents_own_model_writes_its_own_summary(rig: Rig, mode: str) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        done = await compact_thread(rig, agent, mode=mode, model="openai/gpt-5-mini")
        (asked,) = summary_questions(rig)
    assert isinstance(done, Compaction)
    assert asked.choice.handle == agent.model.handle


async def test_what_cannot_shrink_is_refused_and_no_run_is_made(rig: Rig) -> None:
    agent = await rig.make_agent("ask", rules=(HELD,), compaction_settings=ALL)
    rig.model.script = [call_answer(("c1", "ask"))]
    async with rig.run_worker():
        with pytest.raises(CallerError, match="may not have enough messages"):
            await compact_thread(rig, agent)
        await rig.say(agent)
        before = await load_newest_run(rig)
        with pytest.raises(CallerError, match="failed to reduce the number of messages"):
            await compact_thread(rig, agent)
        assert (await load_newest_run(rig)).id == before.id


async def wait_for_live_runs(rig: Rig, count: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while len(await rig.read(lambda tx: list(tx.runs.list_live()))) < count:
            pass


async def test_it_waits_for_its_turn_and_others_wait_for_it(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.gate = asyncio.Event()
        rig.model.asked.clear()
        rig.model.script = [
            text_answer("answer"),
            text_answer("They talked."),
            text_answer("after"),
        ]
        first = await rig.submit(agent, "before")
        await wait_until_set(rig.model.asked)
        wish = asyncio.create_task(compact_thread(rig, agent))
        await wait_for_live_runs(rig, 2)
        last = await rig.submit(agent, "later")
        rig.model.gate.set()
        assert await wish == Compaction("They talked.", 9, 2)
        await rig.wait_for_end(first)
        await rig.wait_for_end(last)
    assert await context_lines(rig, agent) == ["They talked.", "later", "after"]


async def test_while_a_person_is_asked_their_calls_stay_in_view(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, tools=("ask", "roll"), rules=(HELD,))
        rig.model.script = [call_answer(("c1", "ask"), ("c2", "roll")), text_answer("They talked.")]
        paused = await rig.say(agent, "do it")
        assert await compact_thread(rig, agent) == Compaction("They talked.", 10, 4)
        rows = await rig.context(agent)
        assert [row.role for row in rows[1:]] == [Role.SUMMARY, Role.ASSISTANT, Role.APPROVAL]
        waiting = await rig.read(lambda tx: tx.runs.find_paused(agent.id))
        assert waiting is not None
        assert waiting.id == paused.run.id
        stored = await rig.read(lambda tx: tx.agents.get(ACTOR.organization_id, agent.id))
        assert stored.last_stop_reason == StopReason.REQUIRES_APPROVAL
        assert (await approve_and_wait(rig, agent, "c1")).ended.stop_reason is StopReason.END_TURN
    assert_calls_answered(await rig.context(agent))
    assert sorted(rig.toolbox.started) == ["c1", "c2"]


@asynccontextmanager
async def paused_during_summary(rig: Rig) -> AsyncIterator[tuple[Agent, Run]]:
    """An agent that waits for a person, and its run, while a summary is written; that ends with this."""
    gate, writing = asyncio.Event(), asyncio.Event()

    async def summarise() -> AsyncIterator[ModelEvent]:
        writing.set()
        await gate.wait()
        yield text_answer("They talked.")

    use_model(rig, Summariser(summarise))
    async with rig.run_worker():
        agent = await make_talkative_agent(rig, tools=("ask",), rules=(HELD,))
        rig.model.script = [call_answer(("c1", "ask"))]
        paused = await rig.say(agent, "do it")
        wish = asyncio.create_task(compact_thread(rig, agent))
        await wait_until_set(writing)
        yield agent, paused.run
        gate.set()
        assert isinstance(await wish, Compaction)
        run = await load_newest_run(rig)
        assert (run.status, run.progress.recoveries) == (RunStatus.COMPLETED, 0)


async def test_a_person_who_is_no_longer_asked_meanwhile_is_not_forgotten(rig: Rig) -> None:
    """The paused run is cancelled while a summary is written: its denials come to the context, and stay."""
    async with paused_during_summary(rig) as (agent, paused):
        await runs.cancel(rig.services, ACTOR, paused.id)
    async with rig.run_worker():
        rows = await rig.context(agent)
        assert [row.role for row in rows[1:]] == [
            Role.SUMMARY,
            Role.APPROVAL,
            Role.APPROVAL,
            Role.TOOL,
        ]
        assert_calls_answered(rows)
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_a_run_that_is_rolled_back_meanwhile_is_forgotten(
    any_store: SqlStore,
) -> None:
    rig = Rig(any_store)
    async with paused_during_summary(rig) as (agent, paused):
        await runs.cancel(rig.services, ACTOR, paused.id, action=Action.ROLLBACK)
    assert await context_lines(rig, agent) == ["They talked."]
    async with rig.run_worker():
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_a_failure_is_reported_to_the_caller(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        rig.model.script = [ModelRejectedRequest("no")]
        failed = await compact_thread(rig, agent)
        assert isinstance(failed, RunFailure)
        assert (failed.kind, failed.detail) == ("llm_bad_request", "no")
        assert len(await rig.context(agent)) == 7


async def test_it_goes_on_after_a_crash(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    async with first.run_worker():
        agent = await make_talkative_agent(first)
        first.model.gate = asyncio.Event()
        first.model.asked.clear()
        wish = asyncio.create_task(compact_thread(first, agent))
        await wait_until_set(first.model.asked)
        (run,) = await first.read(lambda tx: list(tx.runs.list_live()))
    wish.cancel()
    second.model.script = [text_answer("They talked.")]
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    assert await context_lines(second, agent) == ["They talked."]
    told = await facts_of(second, run)
    assert [type(fact) for fact in told].count(RunEnded) == 1


async def test_a_summariser_that_fails_for_a_moment_is_asked_again(rig: Rig) -> None:
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
    clock = FakeClock()
    rig.services = dataclasses.replace(rig.services, clock=clock)
    async with rig.run_worker():
        passing = ModelOverloaded("TEST: full", transient=True)
        rig.model.script = [nearly_full_answer(), passing, text_answer("They talked.")]
        run = await rig.submit(agent)
        clock.advance(await clock.wait_for_sleep(1))
        await rig.wait_for_end(run)
        (summary,) = [step for step in await steps(rig, run) if step.origin]
    assert await context_lines(rig, agent) == ["They talked."]
    assert [attempt.kind for attempt in summary.attempts] == ["llm_overloaded"]


OWN_SERVER = "http://10.0.0.1/v1"


@pytest.mark.parametrize("endpoint", [OWN_SERVER, None])
async def test_a_conversation_with_a_self_hosted_model_is_summarised_by_it(
    rig: Rig, endpoint: str | None
) -> None:
    known = ProviderSettings({"openai": {"api_key": "key"}}, allowed_model_endpoints=(OWN_SERVER,))
    rig.services = dataclasses.replace(rig.services, catalogue=ProviderCatalogue(known))
    async with rig.run_worker():
        agent = await make_talkative_agent(rig)
        model = replace(agent.model, handle="openai/mine", endpoint=endpoint)
        agent = replace(agent, model=model, compaction_settings=None)
        await rig.services.store.write(lambda tx: tx.agents.save(agent))
        rig.model.script = [nearly_full_answer(), text_answer("They talked.")]
        await rig.say(agent)
        (asked,) = summary_questions(rig)
    assert asked.choice.handle == ("openai/mine" if endpoint else "openai/gpt-5-mini")
    assert asked.choice.endpoint == endpoint
