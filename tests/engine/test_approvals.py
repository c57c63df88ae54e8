"""Held calls and whatever may be answered to them: nobody is ever stuck (wire-v1 §6)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.doubles.clock import MovableClock
from tests.doubles.model import call_answer, text_answer
from tests.doubles.store import CrashingStore
from tests.support.engine_approvals import (
    LOOK,
    allow,
    answer,
    assert_not_stuck,
    client_result,
    deny,
    make_agent,
    pause,
    submit,
)
from tests.support.engine_runs import assert_sound, compact_thread
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Agent
from holdfast.core.approvals import KEEP_ALIVE, ApprovalQuery
from holdfast.core.deadlines import OnTimeout
from holdfast.core.expiry import EXPIRY_DECIDER
from holdfast.core.messages import Decision, Outcome, Role, Text, ToolReturn
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.errors import AnswerMismatch, CallerError, Conflict, ModelRateLimited, PendingApproval
from holdfast.ports.bell import DEADLINES
from holdfast.ports.store import Transaction
from holdfast.usecases import approvals, runs
from holdfast.usecases.compaction import Compaction

SOON_SECONDS = 60


@asynccontextmanager
async def temporary_agent(rig: Rig) -> AsyncIterator[Agent]:
    """An agent for as long as one example lasts: the names of its tools are those of the next one's too."""
    agent = await make_agent(rig)
    try:
        yield agent
    finally:
        await rig.services.store.write(lambda tx: _remove(tx, agent))


def _remove(tx: Transaction, agent: Agent) -> None:
    tools = tx.agents.tools([agent.id])[agent.id]
    tx.agents.delete(agent.organization_id, agent.id)
    for tool in tools:
        tx.tools.delete(agent.organization_id, tool.id)


async def test_the_row_of_the_answer_belongs_to_the_step_that_asked(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        asked = await pause(rig, agent, ("c1", "ask"))
        await answer(rig, agent, allow("c1"))
    rows = await rig.context(agent)
    steps = {row.step_id for row in rows if row.decisions or row.tool_returns or row.tool_calls}
    assert steps == {asked.messages[-1].step_id}


async def test_each_decision_says_who_made_it_and_when(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"))
        reply = await answer(rig, agent, allow("c1"))
    (decision,) = [item for row in await rig.context(agent) for item in row.decisions]
    assert decision.decided_by_id == ACTOR.user_id
    assert decision.decided_at == reply.run.created_at


async def test_a_run_that_waited_behind_the_pause_gets_a_hint_how_to_continue(rig: Rig) -> None:
    agent = await make_agent(rig)
    rig.model.script = [call_answer(("c1", "ask"))]
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        await rig.submit(agent)
        second = await rig.submit(agent)
        rig.model.gate.set()
        failure = (await rig.wait_for_end(second)).failure
    assert failure is not None
    assert failure.detail == failure.message == str(PendingApproval(""))
    assert failure.pending_calls == (("c1", "ask"),)
    open_calls = await rig.read(lambda tx: tx.calls.list_open(agent.id))
    assert failure.pending_request_id == open_calls[0].message_id


async def test_a_pause_whose_run_is_deleted_blocks_no_other_run(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        asked = await pause(rig, agent, ("c1", "ask"), ("c2", "roll"))
        await runs.remove(rig.services, ACTOR, asked.run.id)
        with pytest.raises(CallerError, match="No tool call is currently awaiting approval"):
            await submit(rig, agent, allow("c1"))
        await assert_not_stuck(rig, agent)
    assert rig.toolbox.started == []


async def test_a_model_that_fails_after_the_answer_costs_nothing_but_its_words(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "roll"))
        rig.model.script = [ModelRateLimited("slow down")]
        failed = await answer(rig, agent, allow("c1"), more="And hurry.")
        assert failed.ended.status is RunStatus.FAILED
        again = await answer(rig, agent, allow("c1"))
        assert again.ended.stop_reason is StopReason.END_TURN
        await assert_not_stuck(rig, agent)
    said_by_user = [row.text for row in await rig.context(agent) if row.role is Role.USER]
    assert said_by_user == ["Hi", "And hurry.", KEEP_ALIVE, "Hi"]
    assert sorted(rig.toolbox.started) == ["c1", "c2"]


async def test_a_result_that_is_too_long_to_be_kept_whole_may_come_again(rig: Rig) -> None:
    agent = await make_agent(rig)
    long = ToolReturn("c1", None, Outcome.FINISHED, (Text("x" * 200_000),))
    given = Decision("c1", approve=False, returned=long)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "look"), ("c2", "ask"))
        for _ in range(2):
            run = await rig.wait_for_end(await submit(rig, agent, given, partial=True))
            assert run.status is RunStatus.PAUSED
        reply = await answer(rig, agent, given, allow("c2"))
    assert reply.ended.stop_reason is StopReason.END_TURN
    (result, _) = [item for row in await rig.context(agent) for item in row.tool_returns]
    assert "truncated" in result.text


async def test_the_inbox_knows_each_decision_however_many_answers_there_were(rig: Rig) -> None:
    agent = await make_agent(rig)
    calls = [f"c{number}" for number in range(22)]
    async with rig.run_worker():
        asked = await pause(rig, agent, *((call_id, "ask") for call_id in calls))
        for call_id in calls[:-1]:
            await rig.wait_for_end(await submit(rig, agent, deny(call_id), partial=True))
        query = ApprovalQuery(page=Page(limit=10), agent_id=agent.id)
        waiting = await approvals.load_inbox(rig.services, ACTOR, query)
        request = await approvals.retrieve(rig.services, ACTOR, asked.messages[-1].id)
        assert [item.call_id for item in request.decisions] == calls[:-1]
        assert waiting.decisions == {request.row.id: request.decisions}
        await rig.wait_for_end(await submit(rig, agent, allow(calls[-1])))
        request = await approvals.retrieve(rig.services, ACTOR, asked.messages[-1].id)
    assert [item.call_id for item in request.decisions] == calls


async def test_a_cancel_lets_stand_what_was_decided_before(rig: Rig) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(
            rig, agent, ("c1", "ask"), ("c2", "ask"), ("c3", "look"), ("c4", "ask"), ("c5", "roll")
        )
        run = await rig.wait_for_end(
            await submit(rig, agent, allow("c1"), deny("c2"), client_result("c3"), partial=True)
        )
        run = await runs.cancel(rig.services, ACTOR, run.id)
        await assert_not_stuck(rig, agent)
    assert rig.toolbox.started == []
    rows = await rig.context(agent)
    made = [(item.call_id, item.approve) for row in rows for item in row.decisions]
    assert made == [("c1", True), ("c2", False), ("c3", False), ("c4", False)]
    outcomes = {
        "c1": Outcome.NOT_STARTED,
        "c2": Outcome.DENIED,
        "c3": Outcome.FINISHED,
        "c4": Outcome.DENIED,
        "c5": Outcome.DENIED,
    }
    assert {item.call_id: item.outcome for row in rows for item in row.tool_returns} == outcomes
    assert run.cancellation is not None
    assert run.cancellation.calls == outcomes


# The answer's run writes: begin with the write-ahead, the outcome of each call, the results, the end.
@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_a_crash_while_an_answer_is_carried_out_runs_no_call_twice(
    store: SqliteStore, at: int, after_commit: bool
) -> None:
    first, second = Rig(store), Rig(store)
    agent = await make_agent(first)
    async with first.run_worker():
        await pause(first, agent, ("c1", "ask"), ("c2", "roll"), ("c3", "ask"))
    run = await submit(first, agent, allow("c1"), deny("c3"), more="And hurry.")
    dying = CrashingStore(store, at, after_commit=after_commit)
    first.services = replace(first.services, store=dying)
    async with first.run_worker():
        await asyncio.wait_for(dying.died.wait(), WAIT_SECONDS)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
        await assert_sound(second, agent, run)
        assert (await second.say(agent)).ended.stop_reason is StopReason.END_TURN
    rows = await second.context(agent)
    assert [row.role for row in rows if row.decisions] == [Role.APPROVAL]
    assert [row.text for row in rows if row.role is Role.USER] == ["Hi", "And hurry.", "Hi"]
    started = first.toolbox.started + second.toolbox.started
    assert len(started) == len(set(started))
    results = {item.call_id: item.outcome for row in rows for item in row.tool_returns}
    assert results["c3"] is Outcome.DENIED
    finished = {call_id for call_id, outcome in results.items() if outcome is Outcome.FINISHED}
    assert finished <= set(started) <= {"c1", "c2"}
    others = {call_id: results[call_id] for call_id in {"c1", "c2"} - finished}
    assert set(others.values()) <= {Outcome.UNKNOWN, Outcome.NOT_STARTED}
    assert not [
        key for key, told in others.items() if told is Outcome.NOT_STARTED and key in started
    ]


class ApprovalAction(StrEnum):
    """What somebody does about held calls."""

    ANSWER = "answer"
    SPEAK = "speak"
    NAME_ANOTHER = "name another"
    LEAVE_ONE_OUT = "leave one out"
    CONTRADICT = "contradict"
    ANSWER_TWICE_AT_ONCE = "answer twice at once"
    ANSWER_ONE_BY_ONE = "answer one by one"
    ANSWER_WHILE_QUEUED = "answer while another's answer is queued"
    ANSWER_ONE_AND_CANCEL = "answer one and cancel"
    ANSWER_ONE_AND_CANCEL_WHO_ASKED = "answer one and cancel the run that asked"
    CANCEL_WHILE_QUEUED = "cancel while the answer is queued"
    LET_EXPIRE = "let expire"
    ANSWER_ONE_AND_LET_EXPIRE = "answer one and let expire"
    CANCEL = "cancel"
    DELETE = "delete"


TOOLS = ("ask", "look", "roll")
BY_CLOCK = (ApprovalAction.LET_EXPIRE, ApprovalAction.ANSWER_ONE_AND_LET_EXPIRE)
ONE_ANSWERED = (
    ApprovalAction.ANSWER_ONE_AND_CANCEL,
    ApprovalAction.ANSWER_ONE_AND_CANCEL_WHO_ASKED,
)
NOBODY_ANSWERS = (*ONE_ANSWERED, ApprovalAction.CANCEL, ApprovalAction.DELETE)
FINAL = (
    ApprovalAction.ANSWER,
    ApprovalAction.ANSWER_TWICE_AT_ONCE,
    ApprovalAction.ANSWER_ONE_BY_ONE,
    ApprovalAction.ANSWER_WHILE_QUEUED,
    ApprovalAction.CANCEL_WHILE_QUEUED,
    *BY_CLOCK,
    *NOBODY_ANSWERS,
)
# What is refused at once, and leaves everything as it was.
REFUSED = tuple(deed for deed in ApprovalAction if deed not in FINAL)


class Batch(Struct, frozen=True):
    """Calls of one answer of the model, what is tried in vain, how it ends, and what comes too late."""

    tools: tuple[str, ...]
    in_vain: tuple[ApprovalAction, ...]
    final: ApprovalAction
    answers: tuple[int, ...]
    repeated: bool
    follow_up: bool
    approve_on_timeout: bool = False
    contradicted: bool = True


batches = st.builds(
    Batch,
    tools=st.lists(st.sampled_from(TOOLS), min_size=1, max_size=4).map(tuple),
    in_vain=st.lists(st.sampled_from(REFUSED), max_size=3).map(tuple),
    final=st.sampled_from(FINAL),
    answers=st.lists(st.integers(0, 2), min_size=4, max_size=4).map(tuple),
    repeated=st.booleans(),
    follow_up=st.booleans(),
    approve_on_timeout=st.booleans(),
    contradicted=st.booleans(),
)


def request_of(batch: Batch) -> dict[str, Any]:
    asked: dict[str, Any] = {"client_tools": (LOOK,)}
    if batch.final in BY_CLOCK:
        outcome = OnTimeout.APPROVE if batch.approve_on_timeout else OnTimeout.DENY
        asked |= {"approval_timeout_seconds": SOON_SECONDS, "approval_on_timeout": outcome}
    return asked


def decisions_of(batch: Batch, held: Sequence[str]) -> list[Decision]:
    return [
        (allow, deny, client_result)[number](call_id)
        for call_id, number in zip(held, batch.answers, strict=False)
    ]


def reverse_decision(decision: Decision) -> Decision:
    return deny(decision.call_id) if decision.approve else allow(decision.call_id)


async def try_in_vain(rig: Rig, agent: Agent, deed: ApprovalAction, right: list[Decision]) -> None:
    first = right[0]
    wrong = {
        ApprovalAction.NAME_ANOTHER: [allow("nobody")],
        ApprovalAction.LEAVE_ONE_OUT: right[1:] or [allow("nobody")],
        ApprovalAction.CONTRADICT: [*right, reverse_decision(first)],
    }
    if deed is ApprovalAction.SPEAK:
        with pytest.raises(PendingApproval):
            await rig.submit(agent)
    else:
        with pytest.raises(AnswerMismatch):
            await submit(rig, agent, *wrong[deed])


async def let_expire(rig: Rig, agent: Agent, answered: list[Decision]) -> None:
    if answered:
        await rig.wait_for_end(await submit(rig, agent, *answered, partial=True))
    assert isinstance(rig.services.clock, MovableClock)
    rig.services.clock.advance(SOON_SECONDS)
    rig.services.bell.ring(DEADLINES)
    assert (await rig.wait_for_expiry()).stop_reason is StopReason.END_TURN


@asynccontextmanager
async def while_summarising(rig: Rig, agent: Agent) -> AsyncIterator[None]:
    """A summary is written for as long as this lasts: an answer that is sent meanwhile is queued."""
    gate = rig.model.gate = asyncio.Event()
    rig.model.asked.clear()
    wish = asyncio.create_task(compact_thread(rig, agent))
    await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
    yield
    gate.set()
    assert isinstance(await asyncio.wait_for(wish, WAIT_SECONDS), Compaction)


async def answer_twice_at_once(rig: Rig, agent: Agent, right: list[Decision], more: str) -> None:
    both = [submit(rig, agent, *right, more=more) for _ in range(2)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    won = [item for item in outcomes if isinstance(item, Run)]
    assert won
    assert all(isinstance(item, Run | CallerError) for item in outcomes)
    for winner in won:
        await rig.wait_for_end(winner)


async def answer_one_by_one(rig: Rig, agent: Agent, right: list[Decision]) -> None:
    for decision in right:
        run = await rig.wait_for_end(await submit(rig, agent, decision, partial=True))
        with pytest.raises(Conflict, match="It was decided before"):
            await submit(rig, agent, reverse_decision(decision), partial=True)
    assert run.stop_reason is StopReason.END_TURN


async def answer_while_queued(rig: Rig, agent: Agent, right: list[Decision]) -> None:
    first, *rest = right
    async with while_summarising(rig, agent):
        run = await submit(rig, agent, first, partial=True)
        with pytest.raises(Conflict, match=f"It was decided before: {first.call_id} was"):
            await submit(rig, agent, reverse_decision(first), partial=True)
        for other in rest:
            with pytest.raises(Conflict, match=f"try again in a moment for .*{other.call_id}"):
                await submit(rig, agent, other, partial=True)
    run = await rig.wait_for_end(run)
    if rest:
        run = await rig.wait_for_end(await submit(rig, agent, *rest))
    assert run.stop_reason is StopReason.END_TURN


async def answer_one_and_cancel(
    rig: Rig, agent: Agent, batch: Batch, asked: Run, right: list[Decision]
) -> None:
    """By the id of the run that waits, or of the one that asked and has handed its calls on."""
    cancelled, queued = asked, batch.follow_up
    async with while_summarising(rig, agent) if queued else nullcontext():
        if len(right) > 1:
            run = await submit(rig, agent, right[0], partial=True)
            if not queued:
                await rig.wait_for_end(run)
            cancelled = run if batch.final is ApprovalAction.ANSWER_ONE_AND_CANCEL else asked
        ended = await runs.cancel(rig.services, ACTOR, cancelled.id)
    assert ended.status is RunStatus.CANCELLED


async def cancel_while_queued(rig: Rig, agent: Agent, right: list[Decision]) -> None:
    started = list(rig.toolbox.started)
    async with while_summarising(rig, agent):
        run = await submit(rig, agent, *right, more="And hurry.")
        ended = await runs.cancel(rig.services, ACTOR, run.id)
    assert ended.status is RunStatus.CANCELLED
    assert rig.toolbox.started == started
    *_, answered, results = await rig.context(agent)
    assert [item.call_id for item in answered.decisions] == [item.call_id for item in right]
    returns = {item.call_id: item for item in results.tool_returns}
    for item in right:
        outcome = Outcome.NOT_STARTED if item.approve else Outcome.DENIED
        assert returns[item.call_id].outcome is (Outcome.FINISHED if item.returned else outcome)


async def finish(rig: Rig, agent: Agent, batch: Batch, run: Run, right: list[Decision]) -> None:
    more = "And hurry." if batch.follow_up else ""
    match batch.final:
        case ApprovalAction.ANSWER:
            reply = await answer(rig, agent, *right, more=more)
            assert reply.ended.stop_reason is StopReason.END_TURN
        case ApprovalAction.ANSWER_TWICE_AT_ONCE:
            await answer_twice_at_once(rig, agent, right, more)
        case ApprovalAction.ANSWER_ONE_BY_ONE:
            await answer_one_by_one(rig, agent, right[::-1])
        case ApprovalAction.ANSWER_WHILE_QUEUED:
            await answer_while_queued(rig, agent, right)
        case ApprovalAction.ANSWER_ONE_AND_CANCEL | ApprovalAction.ANSWER_ONE_AND_CANCEL_WHO_ASKED:
            await answer_one_and_cancel(rig, agent, batch, run, right)
        case ApprovalAction.CANCEL_WHILE_QUEUED:
            await cancel_while_queued(rig, agent, right)
        case ApprovalAction.LET_EXPIRE | ApprovalAction.ANSWER_ONE_AND_LET_EXPIRE:
            answered = right[:1] if batch.final is ApprovalAction.ANSWER_ONE_AND_LET_EXPIRE else []
            await let_expire(rig, agent, answered if len(right) > 1 else [])
        case ApprovalAction.CANCEL:
            assert (await runs.cancel(rig.services, ACTOR, run.id)).status is RunStatus.CANCELLED
        case _:
            await runs.remove(rig.services, ACTOR, run.id)


@pytest.mark.slow
@given(history=st.lists(batches, min_size=1, max_size=3))
@example(
    history=[
        Batch(
            ("ask", "look", "ask"),
            (),
            ApprovalAction.ANSWER_WHILE_QUEUED,
            (0, 2, 1, 0),
            True,
            False,
        )
    ]
)
@example(
    history=[
        Batch(
            ("ask", "look"), (), ApprovalAction.ANSWER_ONE_AND_CANCEL_WHO_ASKED, (0, 2), True, False
        ),
        Batch(
            ("ask", "ask"), (), ApprovalAction.ANSWER_ONE_AND_CANCEL_WHO_ASKED, (0, 1), True, True
        ),
        Batch(("ask", "roll", "look"), (), ApprovalAction.CANCEL_WHILE_QUEUED, (1, 2), True, False),
    ]
)
@example(
    history=[
        Batch(
            ("roll", "ask"),
            (ApprovalAction.SPEAK,),
            ApprovalAction.DELETE,
            (0, 0, 0, 0),
            True,
            False,
        )
    ]
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_whatever_is_answered_the_agent_answers_the_next_message(
    store: SqliteStore, history: list[Batch]
) -> None:
    rig = Rig(store, clock=MovableClock())
    async with temporary_agent(rig) as agent, rig.run_worker():
        await rig.say(agent)
        for number, batch in enumerate(history):
            calls = [(f"c{number}{index}", tool) for index, tool in enumerate(batch.tools)]
            held = [call_id for call_id, tool in calls if tool != "roll"]
            rig.model.script = (
                [call_answer(*calls), text_answer()] if not held else [call_answer(*calls)]
            )
            reply = await rig.say(agent, **request_of(batch))
            if not held:
                continue
            assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
            right = decisions_of(batch, held)
            before = await rig.context(agent)
            for deed in batch.in_vain:
                await try_in_vain(rig, agent, deed, right)
            assert await rig.context(agent) == before
            await finish(rig, agent, batch, reply.run, right)
            if batch.contradicted:
                await _contradict(rig, agent, batch, right)
            if batch.repeated:
                await _repeat(rig, agent, batch, right)
        await assert_not_stuck(rig, agent)


async def _contradict(rig: Rig, agent: Agent, batch: Batch, right: list[Decision]) -> None:
    """Who comes second is told who was first; but a cancel decides nothing that anybody could contradict."""
    decided = batch.final not in NOBODY_ANSWERS
    decided |= batch.final in ONE_ANSWERED and len(right) > 1
    with pytest.raises(CallerError) as caught:
        await submit(rig, agent, reverse_decision(right[0]))
    assert isinstance(caught.value, Conflict) == decided
    words = "It was decided before" if decided else "No tool call is currently awaiting approval"
    assert words in str(caught.value)


async def _repeat(rig: Rig, agent: Agent, batch: Batch, right: list[Decision]) -> None:
    """Given again, an answer counts as given; but nobody gave it if the calls were cancelled or expired."""
    if batch.final in NOBODY_ANSWERS:
        with pytest.raises(CallerError, match="No tool call is currently awaiting approval"):
            await submit(rig, agent, *right)
    elif batch.final in BY_CLOCK:
        with pytest.raises(Conflict, match=f"It was decided before.* by {EXPIRY_DECIDER} at"):
            await submit(rig, agent, *right[::-1])
    else:
        assert (await answer(rig, agent, *right)).ended.stop_reason is StopReason.END_TURN
