"""A call that never began is told as not started, whatever ended its run or its process."""

import asyncio

from tests.doubles.model import call_answer
from tests.support.engine_runs import wait_until_set
from tests.support.rig import Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.messages import Outcome
from holdfast.core.runs import RunStatus
from holdfast.ports.services import Limits


async def test_a_call_behind_the_one_that_ran_when_the_server_died(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent("one", "two")
    first.model.script = [call_answer(("c1", "one"), ("c2", "two"))]
    first.toolbox.gate = asyncio.Event()
    async with first.run_worker():
        run = await first.submit(agent)
        await wait_until_set(first.toolbox.running)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    results = second.model.questions[0].history[-1].tool_returns
    assert [item.outcome for item in results] == [Outcome.UNKNOWN, Outcome.NOT_STARTED]
    assert "before this tool was started" in results[1].text
    assert (first.toolbox.started, second.toolbox.started) == (["c1"], [])


async def test_a_call_behind_the_one_that_broke(rig: Rig) -> None:
    agent = await rig.make_agent("one", "two")
    rig.model.script = [call_answer(("c1", "one"), ("c2", "two"))]
    rig.toolbox.faults["one"] = RuntimeError("TEST: a bug of the toolbox")
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.status is RunStatus.FAILED
    results = (await rig.context(agent))[-1].tool_returns
    assert [item.outcome for item in results] == [Outcome.UNKNOWN, Outcome.NOT_STARTED]


async def test_a_run_that_gets_further_each_time_is_never_given_up(store: SqliteStore) -> None:
    """Only interruptions without progress are counted."""
    limits = Limits(max_recoveries=1)
    rig = Rig(store, limits)
    agent = await rig.make_agent("one")
    run = await rig.submit(agent)
    for number in range(4):
        rig = Rig(store, limits)
        rig.model.script = [call_answer((f"c{number}", "one"))]
        rig.toolbox.gate = asyncio.Event()
        async with rig.run_worker():
            await wait_until_set(rig.toolbox.running)
    rig = Rig(store, limits)
    async with rig.run_worker():
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
