"""Runs that were claimed once and have not ended: their worker died, or could not reach the store.

They go on by the same decision as always. A call that was running then has the outcome ``unknown`` and is
not run again; a question that was under way is asked again.
"""

from msgspec.structs import replace

from holdfast.core.events import Streamed
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.steps import Step, StepStatus
from holdfast.engine.answer_facts import to_model_event
from holdfast.engine.checkpoint import RESERVED_AHEAD, CheckpointResult, Checkpoints
from holdfast.engine.progress import EffectProgress
from holdfast.engine.state import State, load_state
from holdfast.ports.store import Transaction

_INTERRUPTED = RunFailure("interrupted", "The server stopped before this step was finished.")


def resume(
    tx: Transaction, checkpoints: Checkpoints, run_id: str, max_recoveries: int
) -> CheckpointResult | None:
    """Bring the run on its way again, or to its end; None if there is nothing to do."""
    run = tx.runs.find(run_id)
    if run is not None and run.status is RunStatus.QUEUED:
        # The store was out of reach when it was to be claimed.
        return checkpoints.claim(tx, run_id)
    if run is None or run.status not in (RunStatus.RUNNING, RunStatus.CANCELLING):
        return None
    count = run.progress.recoveries + 1
    run = replace(
        run,
        progress=replace(run.progress, recoveries=count),
        # Clients may have seen numbers up to the reserved one: the gap tells of the crash.
        last_event_seq=run.highest_seq,
        reserved_seq=run.highest_seq + RESERVED_AHEAD if run.request.stream_tokens else 0,
    )
    state = load_state(tx, run)
    if run.status is RunStatus.CANCELLING:
        return _cancel_unfinished(tx, checkpoints, state)
    interrupted = _close_interrupted_step(tx, run)
    if count > max_recoveries:
        failure = RunFailure(
            "internal_error",
            "The run was given up.",
            f"It was interrupted {count} times; HOLDFAST_MAX_RECOVERIES is {max_recoveries}.",
        )
        advanced = checkpoints.fail(tx, state, failure, StopReason.ERROR)
    else:
        advanced = checkpoints.advance(tx, state)
    return replace(advanced, finished_step=interrupted)


def _cancel_unfinished(tx: Transaction, checkpoints: Checkpoints, state: State) -> CheckpointResult:
    """End the run where the dead process left it, as far as that is on record."""
    step = next(iter(tx.steps.list_pending(state.run.id)), None)
    told = [event.fact for event in tx.events.list_after(state.run.id, 0, state.run.highest_seq)]
    streamed = [
        fact for fact in told if isinstance(fact, Streamed) and step and fact.step_id == step.id
    ]
    progress = EffectProgress(streamed[0].message_id if streamed else "")
    for fact in streamed:
        progress.answer.add(to_model_event(fact))
    # Whether the tools were really started died with the process; they did not outlive it.
    progress.started_calls |= {item.call.id for item in state.turn.calls}
    return checkpoints.cancel(tx, replace(state, step=step), progress)


def _close_interrupted_step(tx: Transaction, run: Run) -> Step | None:
    """The step whose answer was awaited, if one was."""
    closed = None
    for step in tx.steps.list_pending(run.id):
        closed = replace(step, status=StepStatus.FAILED, failure=_INTERRUPTED)
        tx.steps.save(closed)
    return closed
