"""Asking the model again within a step, where its provider failed for a moment and nobody has seen anything yet."""

import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from holdfast.core.retrying import wait_before
from holdfast.core.runs import Attempt, Step
from holdfast.engine.on_record import put_on_record
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State
from holdfast.errors import Bug, ModelError
from holdfast.ports.house import House
from holdfast.ports.model import Answer

log = logging.getLogger(__name__)


async def until_answered(
    house: House, state: State, progress: EffectProgress, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """The answer of the first attempt that comes to one. Raises what the last one met with.

    Each attempt that failed is on record before the next is waited for.
    """
    step = state.step
    if step is None:
        raise Bug("The model is asked without a step.")
    began_ns = house.clock.monotonic_ns()
    # Of this question: there may have been others before it in the same step.
    failed = 0
    while True:
        try:
            return await ask()
        except ModelError as error:
            spent_seconds = (house.clock.monotonic_ns() - began_ns) / 1e9
            wait, failed = None, failed + 1
            if error.transient and not _was_shown(state, progress):
                wait = _wait(house, step, error, failed, spent_seconds)
            _note(house, progress, error, wait)
            if wait is None:
                raise
        await _put_on_record(house, replace(step, attempts=progress.attempts))
        progress.moved(quiet_seconds=wait)
        await house.clock.sleep(wait)
        progress.start_over()


def with_attempts(state: State, progress: EffectProgress) -> State:
    """The state whose step tells what was tried in vain."""
    if state.step is None or not progress.attempts:
        return state
    return replace(state, step=replace(state.step, attempts=progress.attempts))


def _was_shown(state: State, progress: EffectProgress) -> bool:
    return state.run.request.stream_tokens and not progress.answer.is_empty


def _wait(
    house: House, step: Step, error: ModelError, failed: int, spent_seconds: float
) -> float | None:
    if failed >= house.limits.model_attempts:
        return None
    left_seconds = house.limits.model_retry_seconds - spent_seconds
    return wait_before(
        failed + 1,
        asked_seconds=error.retry_after_seconds,
        left_seconds=left_seconds,
        seed=step.id,
    )


def _note(house: House, progress: EffectProgress, error: ModelError, wait: float | None) -> None:
    failed = Attempt(
        number=len(progress.attempts) + 1,
        kind=error.kind,
        detail=error.detail,
        at=house.clock.now(),
        wait_seconds=wait,
    )
    progress.attempts = (*progress.attempts, failed)


async def _put_on_record(house: House, step: Step) -> None:
    last = step.attempts[-1]
    told = {
        "attempt": last.number,
        "error_type": last.kind,
        "wait_seconds": last.wait_seconds,
    }
    log.warning("model.failed_for_now", extra=told)
    await put_on_record(house, lambda tx: tx.steps.save(step), "noting an attempt")
