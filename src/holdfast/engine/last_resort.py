"""Ending a run that cannot be carried on, whatever it is that makes every try fail.

It reads nothing but the run, its calls and its steps, and decides nothing: what broke the others must not break this.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core import endings
from holdfast.core.cancellation import result_of
from holdfast.core.events import Event
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import HOLDING, Signal, ending, is_over
from holdfast.core.messages import Message, Outcome, Role
from holdfast.core.runs import Run, RunFailure, RunStatus, StepStatus, StopReason
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Transaction

_GIVEN_UP = "The run was given up."


def give_up(
    tx: Transaction, run_id: str, why: str, *, clock: Clock, ids: Ids
) -> tuple[Run, Sequence[Event]] | None:
    """End the run as failed, or as cancelled if that is on record; None if it is over already."""
    run = tx.runs.find(run_id)
    if run is None or is_over(run.status):
        return None
    cancelled = run.status is RunStatus.CANCELLING
    reason = StopReason.CANCELLED if cancelled else StopReason.ERROR
    failure = None if cancelled else RunFailure("internal_error", _GIVEN_UP, why)
    if run.status in HOLDING:
        _answer_calls(tx, run, clock, ids)
    for step in tx.steps.pending(run_id):
        status = StepStatus.CANCELLED if cancelled else StepStatus.FAILED
        tx.steps.save(replace(step, status=status, failure=failure, stop_reason=reason))
    return _end(tx, replace(run, failure=failure), reason, clock)


def _answer_calls(tx: Transaction, run: Run, clock: Clock, ids: Ids) -> None:
    """Every call has its result, so that the thread can be spoken to again."""
    calls = tx.calls.open(run.thread_id)
    if not calls:
        return
    row = Message(
        id=ids.mint(Kind.MESSAGE),
        agent_id=run.agent_id,
        thread_id=run.thread_id,
        role=Role.TOOL,
        created_at=clock.now(),
        tool_returns=tuple(result_of(item, Outcome.UNKNOWN) for item in calls),
        run_id=run.id,
        step_id=calls[0].step_id,
    )
    tx.messages.append([row])
    tx.calls.close(run.thread_id)


def _end(
    tx: Transaction, run: Run, reason: StopReason, clock: Clock
) -> tuple[Run, Sequence[Event]]:
    signal: Signal = ending(reason)
    run = endings.ended(run, reason, signal, clock.now())
    # Clients may have seen numbers up to the highest: the gap tells that something was amiss.
    event = Event(run.id, run.highest_seq + 1, endings.told(run, signal))
    run = tx.runs.change(replace(run, last_event_seq=event.seq), signal)
    tx.events.append([event])
    if run.request.compaction is None:
        tx.agents.note_run_end(
            run.agent_id,
            stop_reason=reason,
            completed_at=run.completed_at,
            duration_ms=(run.total_duration_ns or 0) // 1_000_000,
        )
    return run, (event,)
