"""The end of a run as values: the run's own fields, its last event, the phase in which a cancel found it.
``holdfast.run_end`` writes them."""

from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from holdfast.core import lifecycle
from holdfast.core.events import RunEnded
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Outcome
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.core.steps import COMPACTION, Step


def with_end(run: Run, reason: StopReason, signal: Signal, now: datetime) -> Run:
    """The run with the fields that its end sets, except the status: the store changes that."""
    lifecycle.advance(run.status, signal)
    microseconds = int((now - run.created_at).total_seconds() * 1_000_000)
    return replace(
        run, stop_reason=reason, completed_at=now, total_duration_ns=microseconds * 1_000
    )


def log_fields(run: Run) -> dict[str, str | int]:
    """The fields of the log line about a run that is over."""
    fields: dict[str, str | int | None] = {
        "status": run.status,
        "stop_reason": run.stop_reason,
        "steps": run.progress.steps_taken,
        "prompt_tokens": run.usage.prompt_tokens,
        "completion_tokens": run.usage.completion_tokens,
        "milliseconds": (run.total_duration_ns or 0) // 1_000_000,
        "failure": run.failure.kind if run.failure else None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def run_ended_fact(run: Run, signal: Signal) -> RunEnded:
    """The last event of a run that ends by this signal."""
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


def cancel_phase(run: Run, step: Step | None, outcomes: Mapping[str, Outcome]) -> str:
    """What the run was doing when it was cancelled: ``step`` is its last one, ``outcomes`` has its open calls."""
    if run.status is RunStatus.QUEUED:
        return "queue"
    if run.status is RunStatus.PAUSED:
        return "approval"
    if outcomes:
        return "tools"
    if step is None:
        return "start"
    return "compaction" if step.origin == COMPACTION else "model"
