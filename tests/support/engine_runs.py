"""Steps of the engine suites: wait, make runs and agents in some state, and what must hold of a run that ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.doubles.model import ScriptedModel, call_answer, text_answer
from tests.doubles.store import CrashingStore
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.events import RunEnded
from holdfast.core.messages import Role
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.steps import Step, StepQuery
from holdfast.usecases import compaction
from holdfast.usecases.compaction import Compaction


async def wait_until_set(awaited: asyncio.Event) -> None:
    await asyncio.wait_for(awaited.wait(), WAIT_SECONDS)


async def facts_of(rig: Rig, run: Run) -> list[object]:
    batches = [batch async for batch in rig.services.events.follow(run.id)]
    return [event.fact for batch in batches for event in batch]


async def assert_cancelled(rig: Rig, agent: Agent, run: Run) -> Run:
    """What holds of every cancelled run: one ending, a valid history, an agent that answers."""
    told = await facts_of(rig, run)
    assert [type(fact) is RunEnded for fact in told].count(True) == 1
    ended = await rig.wait_for_end(run)
    assert (ended.status, ended.stop_reason) == (RunStatus.CANCELLED, StopReason.CANCELLED)
    assert ended.cancellation is not None
    assert ended.cancellation.requested_by == ACTOR.user_id
    stored = await rig.read(lambda tx: tx.agents.get(ACTOR.organization_id, agent.id))
    assert stored.last_stop_reason == StopReason.CANCELLED
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []
    assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []
    rig.services = replace(rig.services, model=ScriptedModel())
    async with rig.run_worker():
        assert (await rig.say(agent, "and now?")).ended.stop_reason is StopReason.END_TURN
    return ended


def use_model(rig: Rig, model: ScriptedModel) -> None:
    rig.model = model
    rig.services = replace(rig.services, model=model)


async def steps_of(rig: Rig, run: Run) -> Sequence[Step]:
    query = StepQuery(page=Page(limit=10), run_id=run.id)
    return await rig.read(lambda tx: tx.steps.list(ACTOR.organization_id, query))


async def texts_in(rig: Rig, agent: Agent) -> list[tuple[Role, str]]:
    return [(row.role, row.text) for row in (await rig.context(agent))[1:]]


async def make_paused_run(rig: Rig) -> tuple[Agent, Run]:
    agent = await rig.make_agent("ask", "roll", rules=(rules.RequiresApproval(tool_name="ask"),))
    rig.model.script = [call_answer(("c1", "ask"), ("c2", "roll"))]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
    return agent, reply.run


async def run_until_crash(rig: Rig, agent: Agent, store: CrashingStore) -> Run:
    """Send a message to a process that dies while it works on it."""
    run = await rig.submit(agent)
    rig.services = replace(rig.services, store=store)
    async with rig.run_worker():
        await asyncio.wait_for(store.died.wait(), WAIT_SECONDS)
    return run


async def assert_sound(rig: Rig, agent: Agent, run: Run) -> None:
    """What must hold after any crash, once the next process is done with the run."""
    events = [event async for batch in rig.services.events.follow(run.id) for event in batch]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [type(event.fact) is RunEnded for event in events].count(True) == 1
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []
    assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []
    assert await rig.read(lambda tx: tx.runs.list_live()) == []


async def make_talkative_agent(rig: Rig, rounds: int = 3, **fields: Any) -> Agent:
    """An agent that has talked for a while."""
    agent = await rig.make_agent(
        *fields.pop("tools", ()), compaction_settings={"mode": "all"}, **fields
    )
    for number in range(rounds):
        rig.model.script.append(text_answer(f"answer {number}"))
        await rig.say(agent, f"question {number}")
    return agent


async def compact_thread(rig: Rig, agent: Agent, **wish: Any) -> Compaction | RunFailure:
    async with asyncio.timeout(WAIT_SECONDS):
        started = await compaction.start(rig.services, ACTOR, agent.id, wish or None)
        return (
            started
            if isinstance(started, Compaction)
            else await compaction.wait(rig.services, started)
        )
