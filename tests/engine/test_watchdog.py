"""Runs that get no further are ended; runs that wait for a reason are not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest
from tests.doubles.model import HangingModel, call_answer, text_answer
from tests.doubles.toolbox import ScriptedToolbox
from tests.support.engine_runs import steps_of, texts_in, use_model, wait_until_set
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core.agents import Agent
from holdfast.core.cancellation import Cancellation
from holdfast.core.messages import Outcome, Role, ToolReturn
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import StepStatus
from holdfast.core.tool_rules import RequiresApproval
from holdfast.core.tools import Tool
from holdfast.core.turn import EndTurn, PlannedCall
from holdfast.engine import worker
from holdfast.engine.interruption import Interrupted, Interruption
from holdfast.engine.progress import EffectProgress
from holdfast.engine.watchdog import ASKING, Watchdog
from holdfast.ports.model import TextDelta, ToolCallDelta
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import ToolContext
from holdfast.testing import FakeClock
from holdfast.usecases import cancellation

STALL_SECONDS = 900.0


@pytest.fixture
def clock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of the house; it is looked at all the time."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.005)
    clock = FakeClock()
    rig.services = replace(rig.services, clock=clock)
    return clock


@asynccontextmanager
async def effect(
    interruption: Interruption, progress: EffectProgress
) -> AsyncIterator[asyncio.Task[None]]:
    """An effect that hangs until it is stopped."""
    began = asyncio.Event()

    async def hang() -> None:
        async with interruption.scope(progress):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await wait_until_set(began)
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def wait_for_interruption(task: asyncio.Task[None]) -> EndTurn | None:
    with pytest.raises(Interrupted) as struck:
        await asyncio.wait_for(task, WAIT_SECONDS)
    return struck.value.end


async def test_an_effect_that_is_quiet_for_too_long_is_stopped() -> None:
    clock, interruption = FakeClock(), Interruption()
    dog = Watchdog(clock, STALL_SECONDS)
    progress = EffectProgress("message-1", activity=ASKING, monotonic_ns=clock.monotonic_ns)
    async with effect(interruption, progress) as task:
        clock.advance(STALL_SECONDS)
        dog.check({"run-1": interruption})
        assert not interruption.is_triggered

        progress.record_progress()
        clock.advance(STALL_SECONDS)
        dog.check({"run-1": interruption})
        assert not interruption.is_triggered

        clock.advance(1)
        dog.check({"run-1": interruption})
        end = await wait_for_interruption(task)
    assert end is not None
    assert end.failure is not None
    assert end.failure.kind == "llm_timeout"
    assert "901 seconds while asking the model" in end.failure.detail
    assert "HOLDFAST_RUN_STALL_SECONDS is 900" in end.failure.detail


async def test_what_is_quiet_on_purpose_has_its_time_first() -> None:
    clock, interruption = FakeClock(), Interruption()
    dog = Watchdog(clock, STALL_SECONDS)
    progress = EffectProgress("message-1", activity=ASKING, monotonic_ns=clock.monotonic_ns)
    progress.record_progress(expected_quiet_seconds=60)
    async with effect(interruption, progress) as task:
        clock.advance(STALL_SECONDS + 60)
        dog.check({"run-1": interruption})
        assert not interruption.is_triggered
        clock.advance(1)
        dog.check({"run-1": interruption})
        assert await wait_for_interruption(task) is not None


def test_between_two_effects_there_is_nothing_to_stop() -> None:
    """What the store writes ends by the store's own limits; a strike would hit the next effect."""
    clock, interruption = FakeClock(), Interruption()
    clock.advance(10 * STALL_SECONDS)
    Watchdog(clock, STALL_SECONDS).check({"run-1": interruption})
    assert not interruption.is_triggered


async def assert_stalled(rig: Rig, agent: Agent, run: Run, reason: StopReason, kind: str) -> Run:
    """What holds of every stalled run: it has failed and says why, and the agent answers again."""
    ended = await rig.wait_for_end(run)
    assert (ended.status, ended.stop_reason) == (RunStatus.FAILED, reason)
    assert ended.failure is not None
    assert ended.failure.kind == kind
    assert "HOLDFAST_RUN_STALL_SECONDS" in ended.failure.detail
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []
    rig.model.otherwise = lambda _: text_answer("Here I am.")
    return ended


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_a_model_that_falls_silent_ends_the_run_and_what_it_said_is_kept(
    rig: Rig, clock: FakeClock, stream_tokens: bool
) -> None:
    agent = await rig.make_agent("roll")
    model = HangingModel(
        TextDelta("I was "), TextDelta("about to"), ToolCallDelta("c", "roll", "{")
    )
    use_model(rig, model)
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=stream_tokens)
        await wait_until_set(model.silent)
        clock.advance(STALL_SECONDS + 1)
        await assert_stalled(rig, agent, run, StopReason.LLM_API_ERROR, "llm_timeout")
        assert model.hung_up.is_set()
        assert await texts_in(rig, agent) == [(Role.USER, "Hi"), (Role.ASSISTANT, "I was about to")]
        (step,) = await steps_of(rig, run)
        assert step.status is StepStatus.FAILED
        assert step.failure is not None


async def test_a_tool_that_outlives_its_time_is_stopped(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"))]
    rig.toolbox.gate = asyncio.Event()
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(rig.toolbox.running)
        clock.advance(rig.services.limits.tool_timeout_seconds + STALL_SECONDS + 1)
        await assert_stalled(rig, agent, run, StopReason.ERROR, "stalled")
        results = [item for row in await rig.context(agent) for item in row.tool_returns]
        assert [item.outcome for item in results] == [Outcome.KILLED]
        rig.toolbox.gate = None
        assert (await rig.say(agent, "And now?")).ended.stop_reason is StopReason.END_TURN


async def test_who_waits_for_a_turn_has_not_stalled(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        first = await rig.submit(agent, "one")
        await wait_until_set(rig.model.asked)
        clock.advance(STALL_SECONDS - 1)
        second = await rig.submit(agent, "two")
        rig.model.gate.set()
        assert (await rig.wait_for_end(first)).status is RunStatus.COMPLETED
        assert (await rig.wait_for_end(second)).status is RunStatus.COMPLETED


async def test_who_waits_for_a_person_has_not_stalled(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent("ask", rules=(RequiresApproval(tool_name="ask"),))
    rig.model.script = [call_answer(("c1", "ask"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await rig.wait_for_end(run)
        clock.advance(10 * STALL_SECONDS)
        # Somebody else's turn: the dog has looked at everything meanwhile.
        await rig.say(await rig.make_agent())
    assert (await rig.wait_for_end(run)).status is RunStatus.PAUSED


async def test_a_cancel_on_record_wins_over_a_stall(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent()
    model = HangingModel(TextDelta("Well"))
    use_model(rig, model)

    def cancel_and_save(tx: Transaction) -> None:
        save_cancel(rig, run, tx)
        # The run is stopped from now on, and its end is written after this.
        clock.advance(STALL_SECONDS + 1)

    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        await rig.services.store.write(cancel_and_save)
        ended = await rig.wait_for_end(run)
    assert (ended.status, ended.failure) == (RunStatus.CANCELLED, None)
    assert await texts_in(rig, agent) == [(Role.USER, "Hi"), (Role.ASSISTANT, "Well")]


class SlowToStopToolbox(ScriptedToolbox):
    """Its tool hears that it is to stop, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.cancel_received = asyncio.Event()
        self.done = asyncio.Event()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self.running.set()
        try:
            await self.done.wait()
        except asyncio.CancelledError:
            self.cancel_received.set()
            await self.done.wait()
        return await super().run(tool, planned, context)


class UnstoppableToolbox(ScriptedToolbox):
    """Its tool does not stop, however often it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.done = asyncio.Event()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self.running.set()
        while not self.done.is_set():
            with suppress(asyncio.CancelledError):
                await self.done.wait()
        return await super().run(tool, planned, context)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_run_whose_tool_does_not_stop_is_ended_without_it(
    rig: Rig, clock: FakeClock, cancelled: bool
) -> None:
    agent = await rig.make_agent("roll")
    toolbox = SlowToStopToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "roll"))]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(toolbox.running)
        if cancelled:
            await rig.services.store.write(partial(save_cancel, rig, run))
        clock.advance(rig.services.limits.tool_timeout_seconds + STALL_SECONDS + 1)
        await wait_until_set(toolbox.cancel_received)
        # Nothing says that the dog has looked since; so time goes on until it has.
        following = asyncio.create_task(rig.wait_for_end(run))
        while not following.done():
            clock.advance(STALL_SECONDS + 1)
            await asyncio.wait([following], timeout=worker.POLL_SECONDS)
        ended = await following
        assert ended.status is (RunStatus.CANCELLED if cancelled else RunStatus.FAILED)
        if not cancelled:
            assert ended.failure is not None
            assert "did not stop" in ended.failure.detail
        assert_calls_answered(await rig.context(agent))
        assert (await rig.say(agent, "And now?")).ended.stop_reason is StopReason.END_TURN
        # Whatever comes of the tool at last is nobody's news.
        toolbox.done.set()
        assert (await rig.say(agent, "Still there?")).ended.stop_reason is StopReason.END_TURN
        assert (await rig.wait_for_end(run)).status is ended.status


async def test_a_worker_leaves_without_a_tool_that_does_not_stop(
    rig: Rig, clock: FakeClock
) -> None:
    agent, toolbox = await rig.make_agent("roll"), SlowToStopToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "roll"))]
    duty = worker.Worker(rig.services)
    working = asyncio.create_task(duty.run())
    run = await rig.submit(agent)
    await wait_until_set(toolbox.running)
    clock.advance(rig.services.limits.tool_timeout_seconds + STALL_SECONDS + 1)
    await wait_until_set(toolbox.cancel_received)
    following = asyncio.create_task(rig.wait_for_end(run))
    while not following.done():
        clock.advance(STALL_SECONDS + 1)
        await asyncio.wait([following], timeout=worker.POLL_SECONDS)
    assert duty.live_count == 0

    duty.drain(0)
    await asyncio.wait([working], timeout=WAIT_SECONDS)
    left = working.done()
    toolbox.done.set()
    await asyncio.wait_for(working, WAIT_SECONDS)
    assert left


async def test_a_worker_leaves_without_a_tool_that_never_heeds_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is left to the next start, as any other that did not end in time."""
    monkeypatch.setattr(worker, "STOP_SECONDS", 0.01)
    agent, toolbox = await rig.make_agent("roll"), UnstoppableToolbox()
    rig.services = replace(rig.services, toolbox=toolbox)
    rig.model.script = [call_answer(("c1", "roll"))]
    duty = worker.Worker(rig.services)
    working = asyncio.create_task(duty.run())
    run = await rig.submit(agent)
    await wait_until_set(toolbox.running)

    duty.drain(0)
    await asyncio.wait([working], timeout=WAIT_SECONDS)
    left = working.done()
    found = await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id))
    toolbox.done.set()
    await asyncio.wait_for(working, WAIT_SECONDS)
    assert left
    assert found.status is RunStatus.RUNNING


def save_cancel(rig: Rig, run: Run, tx: Transaction) -> None:
    receipt = Cancellation(requested_at=run.created_at, requested_by=ACTOR.user_id)
    stored = tx.runs.get(ACTOR.organization_id, run.id)
    cancellation.record_cancel(tx, stored, receipt, rig.services.ids)
