"""How a run ends: what is written of it, and what is told."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import lifecycle
from holdfast.core.budgets import Overrun
from holdfast.core.events import RunEnded
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunFailure, StopReason


class EarlyEnd(Struct, frozen=True):
    """As what a run ends that is stopped in the middle of an effect; what it had come to is kept."""

    reason: StopReason
    failure: RunFailure | None = None
    overrun: Overrun | None = None


def budget_end(overrun: Overrun) -> EarlyEnd:
    """V1 has words for too many tokens and for too many steps; time is what steps take."""
    is_time = overrun.limit == "max_seconds"
    reason = StopReason.MAX_STEPS if is_time else StopReason.MAX_TOKENS_EXCEEDED
    return EarlyEnd(reason, overrun=overrun)


def with_end(run: Run, reason: StopReason, signal: Signal, now: datetime) -> Run:
    """The run with all that its end says but the status, which only the store changes."""
    lifecycle.advance(run.status, signal)
    microseconds = int((now - run.created_at).total_seconds() * 1_000_000)
    return replace(
        run, stop_reason=reason, completed_at=now, total_duration_ns=microseconds * 1_000
    )


def log_fields(run: Run) -> dict[str, str | int]:
    """What an operator is told of a run that is over."""
    told: dict[str, str | int | None] = {
        "status": run.status,
        "stop_reason": run.stop_reason,
        "steps": run.progress.steps_taken,
        "prompt_tokens": run.usage.prompt_tokens,
        "completion_tokens": run.usage.completion_tokens,
        "milliseconds": (run.total_duration_ns or 0) // 1_000_000,
        "failure": run.failure.kind if run.failure else None,
    }
    return {key: value for key, value in told.items() if value is not None}


def run_ended_fact(run: Run, signal: Signal) -> RunEnded:
    """The last fact of a run that ends by this signal."""
    if run.stop_reason is None:
        raise ValueError("A run that has no stop reason has not ended.")
    return RunEnded(
        status=lifecycle.advance(run.status, signal),
        stop_reason=run.stop_reason,
        usage=run.usage,
        step_count=run.progress.steps_taken,
        context_tokens=run.progress.context_tokens,
        failure=run.failure,
    )
