"""A provider that fails for a moment: the model is asked again, within a budget and in plain sight."""

import asyncio
from dataclasses import replace

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.engine_runs import steps_of, texts_in
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.agents import Agent
from holdfast.core.messages import Role
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import Attempt, Step, StepStatus
from holdfast.engine import worker
from holdfast.errors import (
    ModelAuthFailed,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelTimedOut,
    StoreUnavailable,
)
from holdfast.ports.model import TextDelta
from holdfast.ports.services import Limits
from holdfast.testing import FakeClock
from holdfast.usecases import runs

LIMITS = Limits(model_attempts=3, model_retry_seconds=60)


def overloaded_error(retry_after: float | None = None) -> ModelError:
    return ModelOverloaded("TEST: full", transient=True, retry_after_seconds=retry_after)


@pytest.fixture
def clock(rig: Rig) -> FakeClock:
    clock = FakeClock()
    rig.services = replace(rig.services, clock=clock, limits=LIMITS)
    return clock


async def pass_waits(clock: FakeClock, *numbers: int) -> None:
    """Let each of these waits pass once it has begun."""
    for number in numbers:
        clock.advance(await clock.wait_for_sleep(number))


async def load_only_step(rig: Rig, run: Run) -> Step:
    (step,) = await steps_of(rig, run)
    return step


def attempt_facts(attempts: tuple[Attempt, ...]) -> list[tuple[int, str, bool]]:
    return [(item.number, item.kind, item.wait_seconds is not None) for item in attempts]


@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_the_model_is_asked_again_until_it_answers(
    rig: Rig, clock: FakeClock, stream_tokens: bool
) -> None:
    agent = await rig.make_agent()
    limited = ModelRateLimited("TEST: slow", transient=True)
    rig.model.script = [overloaded_error(), limited, text_answer("Here I am.")]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=stream_tokens)
        await pass_waits(clock, 1, 2)
        ended = await rig.wait_for_end(run)
    assert (ended.status, ended.stop_reason) == (RunStatus.COMPLETED, StopReason.END_TURN)
    assert await texts_in(rig, agent) == [(Role.USER, "Hi"), (Role.ASSISTANT, "Here I am.")]
    step = await load_only_step(rig, run)
    assert (step.status, step.failure) == (StepStatus.SUCCESS, None)
    assert attempt_facts(step.attempts) == [
        (1, "llm_overloaded", True),
        (2, "llm_rate_limit", True),
    ]
    assert [item.wait_seconds for item in step.attempts] == clock.sleeps
    assert step.attempts[0].detail == "TEST: full"
    assert step.attempts[0].at < step.attempts[1].at
    # One step, however often it was tried; the same question each time.
    assert ended.progress.steps_taken == 1
    assert len({id(item.history) for item in rig.model.questions}) == 1


async def test_the_last_attempt_ends_the_run_with_its_error(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent()
    last = ModelTimedOut("TEST: too late", transient=True)
    rig.model.script = [overloaded_error(), overloaded_error(), last]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await pass_waits(clock, 1, 2)
        ended = await rig.wait_for_end(run)
        assert ended.failure is not None
        assert (ended.failure.kind, ended.failure.detail) == ("llm_timeout", "TEST: too late")
        step = await load_only_step(rig, run)
        assert step.status is StepStatus.FAILED
        assert attempt_facts(step.attempts) == [
            (1, "llm_overloaded", True),
            (2, "llm_overloaded", True),
            (3, "llm_timeout", False),
        ]
        assert (await rig.say(agent, "And now?")).ended.stop_reason is StopReason.END_TURN


@pytest.mark.parametrize(
    ("error", "limits"),
    [
        pytest.param(ModelAuthFailed("TEST"), LIMITS, id="what was refused stays refused"),
        pytest.param(overloaded_error(), replace(LIMITS, model_attempts=1), id="off"),
        pytest.param(overloaded_error(), replace(LIMITS, model_retry_seconds=0), id="no time"),
        pytest.param(overloaded_error(61), LIMITS, id="a wait beyond the budget"),
    ],
)
async def test_what_waiting_does_not_cure_fails_at_once(
    rig: Rig, clock: FakeClock, error: ModelError, limits: Limits
) -> None:
    rig.services = replace(rig.services, limits=limits)
    agent = await rig.make_agent()
    rig.model.script = [error]
    async with rig.run_worker():
        run = await rig.submit(agent)
        ended = await rig.wait_for_end(run)
    assert ended.status is RunStatus.FAILED
    assert clock.sleeps == []
    assert len(rig.model.questions) == 1
    assert attempt_facts((await load_only_step(rig, run)).attempts) == [(1, error.kind, False)]


async def test_the_provider_says_how_long_to_wait(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent()
    rig.model.script = [overloaded_error(30), overloaded_error(30)]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await pass_waits(clock, 1)
        # There is no time for the same again.
        assert (await rig.wait_for_end(run)).status is RunStatus.FAILED
    (wait,) = clock.sleeps
    assert 30 <= wait < 31


async def test_time_that_an_attempt_took_is_gone(rig: Rig, clock: FakeClock) -> None:
    """A provider that is silent for minutes is not asked for as long once more."""
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    rig.model.script = [ModelTimedOut("TEST: silent", transient=True)]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await rig.model.asked.wait()
        clock.advance(60)
        rig.model.gate.set()
        assert (await rig.wait_for_end(run)).status is RunStatus.FAILED
    assert clock.sleeps == []


async def test_an_answer_of_which_tokens_were_shown_is_not_asked_for_again(
    rig: Rig, clock: FakeClock
) -> None:
    agent = await rig.make_agent()
    rig.model.script = [(TextDelta("I was"), overloaded_error())]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        assert (await rig.wait_for_end(run)).status is RunStatus.FAILED
    assert clock.sleeps == []


async def test_an_answer_of_which_nothing_was_streamed_is_retried_from_the_start(
    rig: Rig, clock: FakeClock
) -> None:
    agent = await rig.make_agent()
    rig.model.script = [(TextDelta("I was"), overloaded_error()), text_answer("Here I am.")]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await pass_waits(clock, 1)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert await texts_in(rig, agent) == [(Role.USER, "Hi"), (Role.ASSISTANT, "Here I am.")]


async def test_each_step_has_attempts_of_its_own(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [
        overloaded_error(),
        call_answer(("c1", "roll")),
        overloaded_error(),
        overloaded_error(),
        text_answer(),
    ]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await pass_waits(clock, 1, 2, 3)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    steps = sorted(await steps_of(rig, run), key=lambda step: step.created_at)
    assert [len(step.attempts) for step in steps] == [1, 2]


async def test_a_cancel_does_not_wait_for_the_next_attempt(rig: Rig, clock: FakeClock) -> None:
    agent = await rig.make_agent()
    rig.model.script = [overloaded_error(50)]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await clock.wait_for_sleep()
        await runs.cancel(rig.services, ACTOR, run.id)
        ended = await rig.wait_for_end(run)
        assert ended.status is RunStatus.CANCELLED
        step = await load_only_step(rig, run)
        assert step.status is StepStatus.CANCELLED
        assert attempt_facts(step.attempts) == [(1, "llm_overloaded", True)]
        assert len(rig.model.questions) == 1
        assert (await rig.say(agent, "And now?")).ended.stop_reason is StopReason.END_TURN


async def test_waiting_for_the_next_attempt_is_no_stall(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0)
    rig.services = replace(rig.services, limits=replace(LIMITS, run_stall_seconds=1))
    agent = await rig.make_agent()
    rig.model.script = [overloaded_error(50), text_answer()]
    async with rig.run_worker():
        run = await rig.submit(agent)
        wait = await clock.wait_for_sleep()
        clock.advance(wait - 1)
        # Others have their turn meanwhile, and the watchdog looks at everything.
        await rig.say(await rig.make_agent())
        clock.advance(1)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_an_attempt_can_be_seen_while_the_next_is_waited_for_and_after_a_crash(
    any_store: SqlStore,
) -> None:
    rig, clock = Rig(any_store, LIMITS), FakeClock()
    rig.services = replace(rig.services, clock=clock)
    agent = await rig.make_agent()
    rig.model.script = [overloaded_error(50)]
    async with rig.run_worker():
        run = await rig.submit(agent)
        await clock.wait_for_sleep()
        step = await load_only_step(rig, run)
        assert step.status is StepStatus.PENDING
        assert attempt_facts(step.attempts) == [(1, "llm_overloaded", True)]
    # The worker is gone; another takes over, asks again, and the record stays.
    again = Rig(any_store, LIMITS)
    async with again.run_worker():
        assert (await again.wait_for_end(run)).status is RunStatus.COMPLETED
    failed, success = sorted(await steps_of(again, run), key=lambda item: item.created_at)
    assert (failed.status, attempt_facts(failed.attempts)) == (
        StepStatus.FAILED,
        [(1, "llm_overloaded", True)],
    )
    assert (success.status, success.attempts) == (StepStatus.SUCCESS, ())


async def test_a_store_that_cannot_note_an_attempt_does_not_stop_the_next(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent: Agent = await rig.make_agent()
    rig.model.script = [overloaded_error(), text_answer("Here I am.")]
    write = rig.services.store.write

    async def fails_once(work: object) -> object:
        if len(rig.model.questions) == 1 and not clock.sleeps:
            raise StoreUnavailable("TEST")
        return await write(work)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(rig.services.store, "write", fails_once)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await pass_waits(clock, 1)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert attempt_facts((await load_only_step(rig, run)).attempts) == [(1, "llm_overloaded", True)]
