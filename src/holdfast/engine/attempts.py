"""Asking the model again within a step after a transient failure, as long as no part of the answer was streamed."""

import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from holdfast.core.retrying import retry_wait_seconds
from holdfast.core.runs import Run
from holdfast.core.steps import Attempt, Step
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State
from holdfast.engine.store_writes import save_now
from holdfast.errors import Bug, ModelError
from holdfast.ports.model import Answer
from holdfast.ports.services import Services

log = logging.getLogger(__name__)


async def ask_with_retries(
    services: Services, state: State, progress: EffectProgress, ask: Callable[[], Awaitable[Answer]]
) -> Answer:
    """The answer of the first attempt that succeeds. Raises the error of the last one.

    Each failed attempt is stored before the wait for the next.
    """
    step = state.step
    if step is None:
        raise Bug("The model is asked without a step.")
    started_ns = services.clock.monotonic_ns()
    # For this question; a step may have several.
    failed = 0
    while True:
        try:
            return await ask()
        except ModelError as error:
            spent_seconds = (services.clock.monotonic_ns() - started_ns) / 1e9
            wait, failed = None, failed + 1
            if error.transient and not _was_streamed(state, progress):
                wait = _wait_seconds(services, step, error, failed, spent_seconds)
            _record_attempt(services, progress, error, wait)
            if wait is None:
                raise
        await _save_attempt(services, state.run, replace(step, attempts=progress.attempts))
        progress.record_progress(expected_quiet_seconds=wait)
        await services.clock.sleep(wait)
        progress.reset_answer()


def with_attempts(state: State, progress: EffectProgress) -> State:
    """The state whose step has the failed attempts."""
    if state.step is None or not progress.attempts:
        return state
    return replace(state, step=replace(state.step, attempts=progress.attempts))


def _was_streamed(state: State, progress: EffectProgress) -> bool:
    return state.run.request.stream_tokens and not progress.answer.is_empty


def _wait_seconds(
    services: Services, step: Step, error: ModelError, failed: int, spent_seconds: float
) -> float | None:
    if failed >= services.limits.model_attempts:
        return None
    remaining = services.limits.model_retry_seconds - spent_seconds
    return retry_wait_seconds(
        failed + 1,
        requested_seconds=error.retry_after_seconds,
        remaining_seconds=remaining,
        seed=step.id,
    )


def _record_attempt(
    services: Services, progress: EffectProgress, error: ModelError, wait: float | None
) -> None:
    failed = Attempt(
        number=len(progress.attempts) + 1,
        kind=error.kind,
        detail=error.detail,
        at=services.clock.now(),
        wait_seconds=wait,
    )
    progress.attempts = (*progress.attempts, failed)


async def _save_attempt(services: Services, run: Run, step: Step) -> None:
    last = step.attempts[-1]
    fields = {
        "attempt": last.number,
        "error_type": last.kind,
        "wait_seconds": last.wait_seconds,
    }
    log.warning("model.retrying", extra=fields)
    await save_now(services, run, lambda tx: tx.steps.save(step), "saving a failed attempt")
