"""The store is out of reach for a while, or reports an error after it has committed: nothing that was done is lost."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.doubles.store import OutageStore
from tests.support.engine_runs import assert_sound, wait_until_set
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Agent
from holdfast.core.messages import Outcome, Role
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.ports.model import Answer, Question
from holdfast.ports.services import Services
from holdfast.usecases import runs


async def outcomes_in(rig: Rig, agent: Agent) -> dict[str, Outcome]:
    rows = await rig.context(agent)
    return {item.call_id: item.outcome for row in rows for item in row.tool_returns}


async def start_tool(rig: Rig, agent: Agent, *calls: tuple[str, str]) -> Run:
    """A run whose first tool is running and returns when the gate opens."""
    rig.model.script = [call_answer(*calls)]
    rig.toolbox.gate = asyncio.Event()
    run = await rig.submit(agent)
    await wait_until_set(rig.toolbox.running)
    return run


def open_gate(rig: Rig) -> None:
    assert rig.toolbox.gate is not None
    rig.toolbox.gate.set()


async def test_a_tool_result_outlives_an_outage(store: SqliteStore) -> None:
    rig, outage = Rig(store), OutageStore(store)
    agent = await rig.make_agent("roll")
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        run = await start_tool(rig, agent, ("c1", "roll"))
        outage.is_out = True
        open_gate(rig)
        await wait_until_set(outage.failed)
        outage.is_out = False
        ended = await rig.wait_for_end(run)
    assert (ended.status, ended.progress.recoveries) == (RunStatus.COMPLETED, 0)
    assert await outcomes_in(rig, agent) == {"c1": Outcome.FINISHED}
    assert rig.toolbox.started == ["c1"]


async def test_the_next_tool_does_not_start_before_the_store_knows(store: SqliteStore) -> None:
    rig, outage = Rig(store), OutageStore(store)
    agent = await rig.make_agent("one", "two")
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        run = await start_tool(rig, agent, ("c1", "one"), ("c2", "two"))
        outage.is_out = True
        open_gate(rig)
        await wait_until_set(outage.failed)
        outage.failed.clear()
        # It is tried again, and nothing else happens.
        await wait_until_set(outage.failed)
        assert rig.toolbox.started == ["c1"]
        outage.is_out = False
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert await outcomes_in(rig, agent) == {"c1": Outcome.FINISHED, "c2": Outcome.FINISHED}


async def test_a_cancel_during_an_outage_keeps_the_result(store: SqliteStore) -> None:
    rig, outage = Rig(store), OutageStore(store)
    agent = await rig.make_agent("roll")
    reachable = rig.services
    rig.services = replace(rig.services, store=outage)
    async with rig.run_worker():
        run = await start_tool(rig, agent, ("c1", "roll"))
        outage.is_out = True
        open_gate(rig)
        await wait_until_set(outage.failed)
        cancelling = asyncio.create_task(runs.cancel(reachable, ACTOR, run.id))
        await wait_for_status(reachable, run, RunStatus.CANCELLING)
        outage.is_out = False
        ended = await asyncio.wait_for(cancelling, WAIT_SECONDS)
    assert ended.status is RunStatus.CANCELLED
    assert await outcomes_in(rig, agent) == {"c1": Outcome.FINISHED}


async def wait_for_status(services: Services, run: Run, status: RunStatus) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (await runs.retrieve(services, ACTOR, run.id)).status is not status:
            pass


async def test_a_server_stops_during_an_outage(store: SqliteStore) -> None:
    first, second, outage = Rig(store), Rig(store), OutageStore(store)
    agent = await first.make_agent("roll")
    first.services = replace(first.services, store=outage)
    async with first.run_worker():
        run = await start_tool(first, agent, ("c1", "roll"))
        outage.is_out = True
        open_gate(first)
        await wait_until_set(outage.failed)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    assert await outcomes_in(second, agent) == {"c1": Outcome.UNKNOWN}


def answer_by_rounds(question: Question) -> Answer:
    rounds = sum(row.role is Role.TOOL for row in question.history)
    return [call_answer(("c1", "fast"), ("c2", "two")), call_answer(("c3", "two")), text_answer()][
        rounds
    ]


# The writes of the turn: the claim, the answer with its calls, two results, the second answer, its result, the end.
@pytest.mark.parametrize("stream_tokens", [False, True])
@pytest.mark.parametrize("at", range(8))
async def test_a_commit_that_is_reported_as_failed_is_not_repeated(
    store: SqliteStore, at: int, stream_tokens: bool
) -> None:
    rig = Rig(store)
    agent = await rig.make_agent("fast", "two")
    rig.model.otherwise = answer_by_rounds
    run = await rig.submit(agent, stream_tokens=stream_tokens)
    rig.services = replace(rig.services, store=OutageStore(store, unknown_at=at))
    async with rig.run_worker():
        ended = await rig.wait_for_end(run)
        await assert_sound(rig, agent, run)
    assert (ended.status, ended.stop_reason) == (RunStatus.COMPLETED, StopReason.END_TURN)
    assert Counter(rig.toolbox.started) == {"c1": 1, "c2": 1, "c3": 1}
    assert set((await outcomes_in(rig, agent)).values()) == {Outcome.FINISHED}
