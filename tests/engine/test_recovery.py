"""A process that dies at any moment, and the next one that picks up what it left behind."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.doubles.model import HangingModel, call_answer, text_answer
from tests.doubles.store import CrashingStore, ProcessDied
from tests.support.engine_runs import (
    assert_sound,
    run_until_crash,
    steps_of,
    use_model,
    wait_until_set,
)
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.agents import Agent
from holdfast.core.events import RunEnded
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Outcome, Role
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import StepStatus
from holdfast.engine import recovery
from holdfast.engine.checkpoint import Checkpoints
from holdfast.ports.model import Answer, HiddenThinking, Question, TextDelta
from holdfast.ports.services import Limits
from holdfast.ports.store import Transaction
from holdfast.usecases import runs

T = TypeVar("T")


def answer_by_progress(question: Question) -> Answer:
    """Two tools, then one, then words: told apart by what the history shows."""
    rows = [row for row in question.history if row.role is Role.TOOL]
    unknown = sum(item.outcome is Outcome.UNKNOWN for row in rows for item in row.tool_returns)
    match len(rows):
        case 0:
            return call_answer(("c1", "fast_a"), ("c2", "slow_b"))
        case 1:
            return call_answer(("c3", "slow_b"))
        case _:
            return text_answer(f"All done, {unknown} unknown.")


# A whole turn of the script writes nine times: begin, two answers with their write-ahead, two outcomes of
# parallel tools, their rows, and the end.
@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(7))
async def test_a_crash_at_any_write_loses_nothing_and_runs_no_tool_twice(
    store: SqliteStore, at: int, after_commit: bool
) -> None:
    first, second = Rig(store), Rig(store)
    first.model.otherwise = second.model.otherwise = answer_by_progress
    agent = await first.make_agent("fast_a", "slow_b")
    dying = CrashingStore(store, at, after_commit=after_commit)
    run = await run_until_crash(first, agent, dying)
    async with second.run_worker():
        ended = await second.wait_for_end(run)
        assert ended.status is RunStatus.COMPLETED
        await assert_sound(second, agent, run)
        assert (await second.say(agent)).ended.stop_reason is StopReason.END_TURN
    started = Counter(first.toolbox.started + second.toolbox.started)
    assert set(started.values()) == {1}


async def test_a_call_that_was_running_has_an_unknown_outcome_for_the_model(
    store: SqliteStore,
) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent("roll")
    first.model.script = [call_answer(("c1", "roll"))]
    first.toolbox.gate = asyncio.Event()
    async with first.run_worker():
        run = await first.submit(agent)
        await asyncio.wait_for(first.toolbox.running.wait(), WAIT_SECONDS)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    (result,) = second.model.questions[0].history[-1].tool_returns
    assert result.outcome is Outcome.UNKNOWN
    assert second.toolbox.started == []


async def test_queued_runs_wait_for_the_one_that_was_interrupted(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    first.model.gate = asyncio.Event()
    async with first.run_worker():
        runs = [await first.submit(agent, text) for text in ("one", "two", "three")]
        await asyncio.wait_for(first.model.asked.wait(), WAIT_SECONDS)
    async with second.run_worker():
        for run in runs:
            assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    said_by_user = [row.text for row in await second.context(agent) if row.role is Role.USER]
    assert said_by_user == ["one", "two", "three"]


async def test_a_run_that_keeps_killing_its_process_is_given_up(store: SqliteStore) -> None:
    limits = Limits(max_recoveries=2)
    rig = Rig(store, limits)
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"))]
    rig.model.otherwise = lambda _: pytest.fail("The first process must die before this.")
    run = await run_until_crash(rig, agent, CrashingStore(store, 2, after_commit=False))
    for _ in range(limits.max_recoveries):
        rig = Rig(store, limits)
        rig.model.gate = asyncio.Event()
        async with rig.run_worker():
            await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
    rig = Rig(store, limits)
    async with rig.run_worker():
        ended = await rig.wait_for_end(run)
        assert ended.status is RunStatus.FAILED
        assert ended.failure is not None
        assert "HOLDFAST_MAX_RECOVERIES" in ended.failure.detail
        assert rig.model.questions == []
        await assert_sound(rig, agent, run)
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_a_cancel_on_record_is_honoured_by_the_next_process(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent("roll")
    first.model.script = [call_answer(("c1", "roll"))]
    first.toolbox.gate = asyncio.Event()
    async with first.run_worker():
        run = await first.submit(agent)
        await asyncio.wait_for(first.toolbox.running.wait(), WAIT_SECONDS)

    def cancel(tx: Transaction) -> None:
        tx.runs.transition(tx.runs.get(ACTOR.organization_id, run.id), Signal.CANCEL)

    await store.write(cancel)
    async with second.run_worker():
        ended = await second.wait_for_end(run)
        assert (ended.status, ended.stop_reason) == (RunStatus.CANCELLED, StopReason.CANCELLED)
        await assert_sound(second, agent, run)
        assert second.model.questions == []
        assert (await second.say(agent)).ended.stop_reason is StopReason.END_TURN


async def test_what_a_cancelled_run_had_shown_before_the_crash_stays(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    model = HangingModel(HiddenThinking(redacted=True), TextDelta("Once upon"))
    use_model(first, model)
    async with first.run_worker():
        run = await first.submit(agent, stream_tokens=True)
        await wait_until_set(model.silent)

    def cancel(tx: Transaction) -> None:
        tx.runs.transition(tx.runs.get(ACTOR.organization_id, run.id), Signal.CANCEL)

    await store.write(cancel)
    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.CANCELLED
        await assert_sound_but_for_a_gap(second, agent, run)
    assert [row.text for row in await second.context(agent)][1:] == ["Hi", "Once upon"]
    (step,) = await steps_of(second, run)
    assert step.status is StepStatus.CANCELLED


async def assert_sound_but_for_a_gap(rig: Rig, agent: Agent, run: Run) -> None:
    events = [event async for batch in rig.services.events.follow(run.id) for event in batch]
    assert [type(event.fact) is RunEnded for event in events].count(True) == 1
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []


async def test_a_commit_that_fails_once_does_not_lose_the_run(store: SqliteStore) -> None:
    """The store is back a moment later: the same process picks the run up again."""
    rig = Rig(store)
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"))]

    class FailsOnceStore(CrashingStore):
        async def write(self, work: Callable[[Transaction], T]) -> T:
            try:
                return await super().write(work)
            except ProcessDied:
                self._left = 1_000
                raise OSError("the disk was busy") from None

    run = await rig.submit(agent)
    rig.services = replace(rig.services, store=FailsOnceStore(store, 2, after_commit=False))
    async with rig.run_worker():
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
        await assert_sound(rig, agent, run)


@pytest.mark.parametrize("cancelling", [False, True])
async def test_a_run_that_no_try_can_carry_on_is_ended_and_its_thread_is_free(
    any_store: SqlStore, monkeypatch: pytest.MonkeyPatch, cancelling: bool
) -> None:
    """A mistake of ours in a checkpoint, and in whatever reads the run again."""
    rig = Rig(any_store, Limits(max_recoveries=1))
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll"), ("c2", "roll"))]
    rig.toolbox.gate = asyncio.Event()

    def raise_error(*_: object, **__: object) -> None:
        raise ValueError("TEST: a bug")

    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await wait_until_set(rig.toolbox.running)
        with monkeypatch.context() as patched:
            patched.setattr(Checkpoints, "save", raise_error)
            patched.setattr(recovery, "load_state", raise_error)
            if cancelling:
                await runs.cancel(rig.services, ACTOR, run.id)
            rig.toolbox.gate.set()
            ended = await rig.wait_for_end(run)
        status = RunStatus.CANCELLED if cancelling else RunStatus.FAILED
        assert ended.status is status
        if not cancelling:
            assert ended.failure is not None
            assert (ended.failure.kind, ended.failure.detail) == ("internal_error", "TEST: a bug")
        assert_calls_answered(await rig.context(agent))
        assert await rig.read(lambda tx: tx.steps.list_pending(run.id)) == []
        assert (await rig.say(agent, "And now?")).ended.stop_reason is StopReason.END_TURN
