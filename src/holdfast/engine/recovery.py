"""Loading a claimed run. One that was begun and has not ended is resumed: its worker died, or could not reach the store.

They continue by the same decision as any run. A call that was running has the outcome ``unknown`` and is not run
again; one that had not begun has the outcome ``not_started``; a question that was not answered is asked again.
"""

from msgspec.structs import replace

from holdfast.core.events import Streamed
from holdfast.core.lifecycle import LIVE
from holdfast.core.messages import CallState
from holdfast.core.open_calls import settle_unstarted
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.servers import Claim
from holdfast.core.steps import Step, StepStatus
from holdfast.core.turn import EndTurn
from holdfast.engine.answer_facts import to_model_event
from holdfast.engine.claim import load_queued
from holdfast.engine.event_writer import RESERVED_AHEAD
from holdfast.engine.lease_check import check_lease
from holdfast.engine.progress import EffectProgress, EffectResult
from holdfast.engine.state import State, load_state, with_calls
from holdfast.errors import RunFenced
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

_INTERRUPTED = RunFailure("interrupted", "The server stopped before this step was finished.")


def load_claimed(tx: Transaction, services: Services, claim: Claim) -> EffectResult | None:
    """The run that begins now, or where its last worker left it; None if it is over. RunFenced if the claim is no longer
    the last one. LeaseLost if it was made under an earlier lease of this server: others take the run over, whatever
    the lease of now is."""
    run = tx.runs.find(claim.run_id)
    if run is None or run.status not in LIVE:
        return None
    if run.fence != claim.fence:
        raise RunFenced(run.id)
    check_lease(services, run)
    if run.status is RunStatus.QUEUED:
        return load_queued(tx, services, run)
    return _load_unfinished(tx, services, run)


def _load_unfinished(tx: Transaction, services: Services, run: Run) -> EffectResult:
    count = run.progress.recoveries + 1
    run = replace(
        run,
        progress=replace(run.progress, recoveries=count),
        # Clients may have seen numbers up to the reserved one. The gap in the numbers shows that there was a crash.
        last_event_seq=run.highest_seq,
        reserved_seq=run.highest_seq + RESERVED_AHEAD if run.request.stream_tokens else 0,
    )
    state = load_state(tx, services, run)
    state = with_calls(state, settle_unstarted(state.turn.calls))
    if run.status is RunStatus.CANCELLING:
        return _load_cancelled(tx, state)
    closed = _close_interrupted_step(tx, run)
    max_recoveries = services.limits.max_recoveries
    progress = EffectProgress()
    progress.started_calls |= _started_calls(state)
    if count <= max_recoveries:
        return EffectResult(state, progress, closed_step=closed)
    failure = RunFailure(
        "internal_error",
        "The run was given up.",
        f"It was interrupted {count} times without progress; HOLDFAST_MAX_RECOVERIES is {max_recoveries}.",
    )
    end = EndTurn(StopReason.ERROR, failure)
    return EffectResult(state, progress, end, has_failed=True, closed_step=closed)


def _load_cancelled(tx: Transaction, state: State) -> EffectResult:
    """A run whose cancel is recorded ends with what its last worker had stored, including what it had streamed."""
    step = next(iter(tx.steps.list_pending(state.run.id)), None)
    events = tx.events.list_after(state.run.id, 0, state.run.highest_seq)
    streamed = [
        event.fact
        for event in events
        if isinstance(event.fact, Streamed) and step and event.fact.step_id == step.id
    ]
    progress = EffectProgress(streamed[0].message_id if streamed else "")
    for fact in streamed:
        progress.answer.add(to_model_event(fact))
    # They were killed with the process.
    progress.started_calls |= _started_calls(state)
    return EffectResult(replace(state, step=step), progress, EndTurn(StopReason.CANCELLED))


def _started_calls(state: State) -> set[str]:
    return {item.call.id for item in state.turn.calls if item.state is CallState.STARTED}


def _close_interrupted_step(tx: Transaction, run: Run) -> Step | None:
    """End the step whose answer was awaited, if there is one."""
    closed = None
    for step in tx.steps.list_pending(run.id):
        closed = replace(step, status=StepStatus.FAILED, failure=_INTERRUPTED)
        tx.steps.save(closed)
    return closed
