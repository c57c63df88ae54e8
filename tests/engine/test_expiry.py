"""Held calls that nobody answers in time: the clock's answer is one like any other (wire-v1 §6.11)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.doubles.clock import MovableClock
from tests.doubles.model import call_answer
from tests.doubles.store import CrashingStore
from tests.support.engine_approvals import (
    LOOK,
    allow,
    answer,
    assert_not_stuck,
    client_result,
    deny,
    submit,
)
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.approvals import OverdueRequest
from holdfast.core.deadlines import OnTimeout
from holdfast.core.expiry import EXPIRY_DECIDER
from holdfast.core.messages import Decision, Message, Outcome
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.errors import Conflict, UnknownModel
from holdfast.ports.bell import DEADLINES
from holdfast.usecases import approvals

MINUTE = 60


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def rig(store: SqliteStore, clock: MovableClock) -> Rig:
    return Rig(store, clock=clock)


@pytest.fixture
def any_rig(any_store: SqlStore, clock: MovableClock) -> Rig:
    return Rig(any_store, clock=clock)


def ask(seconds: float = MINUTE, **fields: Any) -> rules.RequiresApproval:
    return rules.RequiresApproval(tool_name="ask", approval_timeout_seconds=seconds, **fields)


PATIENT = rules.RequiresApproval(tool_name="beg")


async def make_agent(rig: Rig, *given: rules.ToolRule) -> Agent:
    return await rig.make_agent("ask", "beg", "roll", rules=given or (ask(), PATIENT))


async def decide(rig: Rig, row: Message, *decisions: Decision) -> Run:
    """Decide in the inbox."""
    request = await approvals.retrieve(rig.services, ACTOR, row.id)
    return await approvals.decide(rig.services, ACTOR, request, decisions)


async def pause(rig: Rig, agent: Agent, *calls: tuple[str, str], **request: Any) -> Message:
    """The row that asks."""
    rig.model.script = [call_answer(*calls)]
    reply = await rig.say(agent, **request)
    assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
    return reply.messages[-1]


async def pass_time(rig: Rig, clock: MovableClock, seconds: float = MINUTE) -> None:
    clock.advance(seconds)
    rig.services.bell.ring(DEADLINES)


async def results(rig: Rig, agent: Agent) -> dict[str, Outcome]:
    rows = await rig.context(agent)
    return {item.call_id: item.outcome for row in rows for item in row.tool_returns}


async def decisions(rig: Rig, agent: Agent) -> dict[str, Decision]:
    found = [item for row in await rig.context(agent) for item in row.decisions]
    assert len({item.call_id for item in found}) == len(found)
    return {item.call_id: item for item in found}


async def list_overdue(rig: Rig) -> list[OverdueRequest]:
    now = rig.services.clock.now()
    return list(await rig.read(lambda tx: tx.calls.list_overdue(now)))


async def test_a_call_without_an_answer_in_time_is_denied(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "roll"))
        await pass_time(rig, clock)
        run = await rig.wait_for_expiry()
        assert (run.status, run.stop_reason) == (RunStatus.COMPLETED, StopReason.END_TURN)
        assert run.background
        await assert_not_stuck(rig, agent)
    assert await results(rig, agent) == {"c1": Outcome.DENIED, "c2": Outcome.FINISHED}
    decision = (await decisions(rig, agent))["c1"]
    assert not decision.approve
    assert (decision.decided_by, decision.decided_by_id) == (EXPIRY_DECIDER, None)
    assert decision.decided_at == run.created_at
    text = next(i.text for r in await rig.context(agent) for i in r.tool_returns)
    assert text.startswith("Error: request to call tool denied. User reason: Nobody answered until")


async def test_a_rule_may_have_it_approved_instead(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig, ask(approval_on_timeout=OnTimeout.APPROVE))
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"))
        await pass_time(rig, clock)
        await rig.wait_for_expiry()
    assert await results(rig, agent) == {"c1": Outcome.FINISHED}
    assert (await decisions(rig, agent))["c1"].approve


async def test_nothing_expires_before_its_time(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "beg"))
        await pass_time(rig, clock, MINUTE / 2)
        assert await list_overdue(rig) == []
        await pass_time(rig, clock, MINUTE / 2)
        await rig.wait_for_expiry()


async def test_a_client_call_without_a_result_in_time_gets_a_result_that_says_so(
    rig: Rig, clock: MovableClock
) -> None:
    agent = await make_agent(rig)
    request = {"client_tools": (LOOK,), "approval_timeout_seconds": MINUTE}
    async with rig.run_worker():
        # Whatever the request says: nobody but the client can run it.
        await pause(rig, agent, ("c1", "look"), approval_on_timeout=OnTimeout.APPROVE, **request)
        await pass_time(rig, clock)
        assert (await rig.wait_for_expiry()).stop_reason is StopReason.END_TURN
        await assert_not_stuck(rig, agent)
    assert rig.toolbox.started == []
    assert await results(rig, agent) == {"c1": Outcome.UNKNOWN}
    (returned,) = [item for row in await rig.context(agent) for item in row.tool_returns]
    assert returned.text.startswith("Error: the client gave no result until")


async def test_what_the_request_says_wins_over_the_rule(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    patient = {"approval_timeout_seconds": 2 * MINUTE, "approval_on_timeout": OnTimeout.APPROVE}
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), **patient)
        await pass_time(rig, clock)
        assert await list_overdue(rig) == []
        await pass_time(rig, clock)
        run = await rig.wait_for_expiry()
    assert await results(rig, agent) == {"c1": Outcome.FINISHED}
    # What was asked for holds for all that comes of it.
    assert run.request.approval_timeout_seconds == 2 * MINUTE


async def test_each_call_has_its_own_time(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(
        rig, ask(), rules.RequiresApproval(tool_name="beg", approval_timeout_seconds=2 * MINUTE)
    )
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "beg"), ("c3", "roll"))
        await pass_time(rig, clock)
        assert (await rig.wait_for_expiry()).status is RunStatus.PAUSED
        assert list(await decisions(rig, agent)) == ["c1"]
        await pass_time(rig, clock)
        assert (await rig.wait_for_expiry()).stop_reason is StopReason.END_TURN
    assert await results(rig, agent) == {
        "c1": Outcome.DENIED,
        "c2": Outcome.DENIED,
        "c3": Outcome.FINISHED,
    }


async def test_what_waits_for_ever_goes_on_waiting_beside_it(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "beg"))
        await pass_time(rig, clock, 100 * MINUTE)
        assert (await rig.wait_for_expiry()).status is RunStatus.PAUSED
        reply = await answer(rig, agent, allow("c2"))
        assert reply.ended.stop_reason is StopReason.END_TURN
    assert await results(rig, agent) == {"c1": Outcome.DENIED, "c2": Outcome.FINISHED}


async def test_only_what_is_still_open_expires(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "ask"))
        await rig.wait_for_end(await submit(rig, agent, allow("c2"), partial=True))
        await pass_time(rig, clock)
        assert (await rig.wait_for_expiry()).stop_reason is StopReason.END_TURN
    assert await results(rig, agent) == {"c1": Outcome.DENIED, "c2": Outcome.FINISHED}
    by = {call_id: item.decided_by for call_id, item in (await decisions(rig, agent)).items()}
    assert by == {"c2": None, "c1": EXPIRY_DECIDER}


async def test_what_was_answered_in_time_never_expires(rig: Rig, clock: MovableClock) -> None:
    agent = await make_agent(rig)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"), ("c2", "beg"))
        await rig.wait_for_end(await submit(rig, agent, allow("c1"), partial=True))
        clock.advance(MINUTE)
        assert await list_overdue(rig) == []
        assert await rig.read(lambda tx: tx.calls.next_deadline(clock.now())) is None


async def test_an_answer_that_comes_too_late_is_refused_with_who_decided(
    rig: Rig, clock: MovableClock
) -> None:
    agent = await make_agent(rig)
    told = f"c1 was denied by {EXPIRY_DECIDER} at "
    async with rig.run_worker():
        row = await pause(rig, agent, ("c1", "ask"))
        rig.model.gate = asyncio.Event()
        await pass_time(rig, clock)
        carried_out = await asyncio.wait_for(rig.expired.get(), WAIT_SECONDS)
        # Whether it is recorded already or just about to be.
        with pytest.raises(Conflict, match=told):
            await submit(rig, agent, allow("c1"))
        with pytest.raises(Conflict, match=told):
            await decide(rig, row, allow("c1"))
        rig.model.gate.set()
        await rig.wait_for_end(carried_out)
        with pytest.raises(Conflict, match=told):
            await submit(rig, agent, allow("c1"))
        with pytest.raises(Conflict, match=told):
            await decide(rig, row, allow("c1"))
        await assert_not_stuck(rig, agent)


async def test_a_person_of_that_name_is_no_clock(rig: Rig) -> None:
    agent = await make_agent(rig)
    posing = Decision("c1", approve=True, decided_by=EXPIRY_DECIDER)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "ask"))
        await answer(rig, agent, posing)
        # Given again it counts as given.
        assert (await answer(rig, agent, posing)).ended.stop_reason is StopReason.END_TURN


async def test_a_restart_looks_at_what_is_stored(store: SqliteStore, clock: MovableClock) -> None:
    first, second = Rig(store, clock=clock), Rig(store, clock=clock)
    agent = await make_agent(first)
    async with first.run_worker():
        await pause(first, agent, ("c1", "ask"), ("c2", "ask"))
        await first.wait_for_end(await submit(first, agent, deny("c2"), partial=True))
    clock.advance(100 * MINUTE)
    async with second.run_worker():
        assert (await second.wait_for_expiry()).stop_reason is StopReason.END_TURN
        await assert_not_stuck(second, agent)


# An expiry writes: the answer's run, its claim with the write-ahead, the results, the end.
@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_a_crash_while_it_expires_costs_nothing(
    store: SqliteStore, clock: MovableClock, at: int, after_commit: bool
) -> None:
    first, second = Rig(store, clock=clock), Rig(store, clock=clock)
    agent = await make_agent(first, ask(approval_on_timeout=OnTimeout.APPROVE))
    async with first.run_worker():
        await pause(first, agent, ("c1", "ask"), ("c2", "roll"))
    clock.advance(MINUTE)
    dying = CrashingStore(store, at, after_commit=after_commit)
    first.services = replace(first.services, store=dying)
    async with first.run_worker():
        await asyncio.wait_for(dying.died.wait(), WAIT_SECONDS)
    async with second.run_worker():
        if at == 0 and not after_commit:
            # Nothing was stored, so it is for this one to expire.
            await second.wait_for_expiry()
        await assert_not_stuck(second, agent)
    started = first.toolbox.started + second.toolbox.started
    assert len(started) == len(set(started))
    assert (await decisions(second, agent))["c1"].decided_by == EXPIRY_DECIDER


async def test_an_answer_and_the_clock_never_both_win(any_rig: Rig, clock: MovableClock) -> None:
    rig = any_rig
    agent = await make_agent(rig)
    for number in range(6):
        call_id = f"c{number}"
        async with _work_without_expiry(rig):
            row = await pause(rig, agent, (call_id, "ask"))
        clock.advance(MINUTE)
        outcomes = await asyncio.gather(
            *_order_by_parity(
                number,
                submit(rig, agent, allow(call_id)),
                approvals.expire(rig.services, OverdueRequest(ACTOR.organization_id, row.id)),
            ),
            return_exceptions=True,
        )
        (winner,) = [item for item in outcomes if isinstance(item, Run)]
        (loser,) = [item for item in outcomes if not isinstance(item, Run)]
        assert isinstance(loser, Conflict), loser
        async with _work_without_expiry(rig):
            await rig.wait_for_end(winner)
        by_clock = (await decisions(rig, agent))[call_id].decided_by == EXPIRY_DECIDER
        assert by_clock == winner.background
    assert_calls_answered(await rig.context(agent))


def _order_by_parity(number: int, *deeds: Any) -> list[Any]:
    return list(deeds if number % 2 else deeds[::-1])


@asynccontextmanager
async def _work_without_expiry(rig: Rig) -> AsyncIterator[None]:
    """At work, but deadlines pass by."""

    async def nothing(*_: object) -> None: ...

    plain, rig._expire = rig._expire, nothing  # type: ignore[method-assign,assignment] # for a while
    try:
        async with rig.run_worker():
            yield
    finally:
        rig._expire = plain  # type: ignore[method-assign]  # as it was


async def test_of_two_answers_at_the_same_time_one_wins(any_rig: Rig) -> None:
    rig = any_rig
    agent = await make_agent(rig)
    async with rig.run_worker():
        for number in range(6):
            call_id = f"c{number}"
            await pause(rig, agent, (call_id, "beg"))
            answers = [submit(rig, agent, make(call_id)) for make in (allow, deny, client_result)]
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
            (winner,) = [item for item in outcomes if isinstance(item, Run)]
            losers = [item for item in outcomes if not isinstance(item, Run)]
            assert all(isinstance(item, Conflict) for item in losers), losers
            assert all(f"{call_id} was " in str(item) for item in losers)
            await rig.wait_for_end(winner)
            assert call_id in await decisions(rig, agent)
        await assert_not_stuck(rig, agent)


async def test_of_equal_decisions_in_the_inbox_at_the_same_time_one_wins(any_rig: Rig) -> None:
    rig = any_rig
    agent = await make_agent(rig)
    async with rig.run_worker():
        for number in range(6):
            call_id = f"c{number}"
            row = await pause(rig, agent, (call_id, "beg"))
            answers = [decide(rig, row, allow(call_id)) for _ in "abc"]
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
            (winner,) = [item for item in outcomes if isinstance(item, Run)]
            losers = [item for item in outcomes if not isinstance(item, Run)]
            assert all(isinstance(item, Conflict) for item in losers), losers
            assert all(f"{call_id} was approved by {ACTOR.user_id}" in str(item) for item in losers)
            await rig.wait_for_end(winner)


async def test_of_several_processes_one_expires_it(
    any_store: SqlStore, clock: MovableClock
) -> None:
    rigs = [Rig(any_store, clock=clock) for _ in range(3)]
    agent = await make_agent(rigs[0])
    async with rigs[0].run_worker():
        row = await pause(rigs[0], agent, ("c1", "ask"))
    clock.advance(MINUTE)
    late = OverdueRequest(ACTOR.organization_id, row.id)
    tries = [approvals.expire(rig.services, late) for rig in rigs]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(item, Run) for item in outcomes) == 1
    assert all(isinstance(item, Run | Conflict) for item in outcomes), outcomes
    query = RunQuery(page=Page(limit=10), thread_id=agent.id)
    found = await any_store.read(lambda tx: tx.runs.list(ACTOR.organization_id, query))
    assert sorted(run.status for run in found) == [RunStatus.ANSWERED, RunStatus.QUEUED]


async def test_one_that_cannot_expire_does_not_hold_up_the_others(
    rig: Rig, clock: MovableClock
) -> None:
    agent = await make_agent(rig)
    other = await rig.make_agent(rules=(ask(),))
    tools = await rig.read(lambda tx: tx.agents.tools([agent.id])[agent.id])
    await rig.services.store.write(
        lambda tx: tx.agents.attach_tools(other.id, [tool.id for tool in tools])
    )
    gone = structs.replace(other, model=structs.replace(other.model, handle="gone/away"))
    async with rig.run_worker():
        await pause(rig, other, ("c1", "ask"))
        await rig.services.store.write(lambda tx: tx.agents.save(gone))
        await pause(rig, agent, ("c2", "ask"))
        await pass_time(rig, clock)
        assert (await rig.wait_for_expiry()).agent_id == agent.id
        assert [item.organization_id for item in await list_overdue(rig)] == [ACTOR.organization_id]
        with pytest.raises(UnknownModel):
            await approvals.expire(rig.services, (await list_overdue(rig))[0])
        # It is tried again: once the model is back, it expires.
        await rig.services.store.write(lambda tx: tx.agents.save(other))
        rig.services.bell.ring(DEADLINES)
        assert (await rig.wait_for_expiry()).agent_id == other.id


async def test_a_request_without_a_timeout_costs_no_deadline(rig: Rig) -> None:
    agent = await make_agent(rig, PATIENT)
    async with rig.run_worker():
        await pause(rig, agent, ("c1", "beg"))
    (call,) = await rig.read(lambda tx: tx.calls.list_open(agent.id))
    assert call.deadline is None
