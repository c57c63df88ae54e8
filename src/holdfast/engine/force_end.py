"""Ending a run that cannot be carried on, whatever it is that makes every try fail.

It decides nothing, and reads the run, its calls and its steps; what was said only where the end depends on it (what
others decided on its calls, what a roll-back forgets): what broke the others must not break this.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import endings
from holdfast.core.events import Event
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import Signal, ending_signal, is_over
from holdfast.core.messages import CallState, Decision, OpenCall, Outcome, decisions_by_call
from holdfast.core.open_calls import owns_calls, results_row, unfinished_result, unstored_answer
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.steps import Step, StepStatus
from holdfast.engine.receipt import with_receipt
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Transaction

_FAILURE_SUMMARY = "The run was given up."


class ForcedEnd(Struct, frozen=True):
    run: Run
    # Those that were still under way.
    steps: tuple[Step, ...]
    events: tuple[Event, ...]


def force_end(
    tx: Transaction, run_id: str, why: str, *, clock: Clock, ids: Ids
) -> ForcedEnd | None:
    """End the run as failed, or as cancelled if that is on record; None if it is over already."""
    run = tx.runs.find(run_id)
    if run is None or is_over(run.status):
        return None
    cancelled = run.status is RunStatus.CANCELLING
    reason = StopReason.CANCELLED if cancelled else StopReason.ERROR
    failure = None if cancelled else RunFailure("internal_error", _FAILURE_SUMMARY, why)
    outcomes = _close_calls(tx, run, clock, ids) if owns_calls(run) else {}
    if outcomes:
        run = replace(run, progress=replace(run.progress, input_stored=True))
    status = StepStatus.CANCELLED if cancelled else StepStatus.FAILED
    steps = tuple(
        replace(step, status=status, failure=failure, stop_reason=reason)
        for step in tx.steps.list_pending(run_id)
    )
    for step in steps:
        tx.steps.save(step)
    if cancelled:
        run = with_receipt(tx, run, next(iter(steps), None), outcomes)
    run, event = _end_run(tx, replace(run, failure=failure), reason, clock)
    return ForcedEnd(run, steps, (event,))


def _close_calls(tx: Transaction, run: Run, clock: Clock, ids: Ids) -> Mapping[str, Outcome]:
    """Every call has its result, so that the thread can be spoken to again. What the run was sent is stored with
    them: an answer was given, whatever became of it."""
    calls = tx.calls.list_open(run.thread_id)
    if not calls:
        return {}
    how = "was cancelled" if run.status is RunStatus.CANCELLING else "was given up"
    decisions = _decisions(tx, run, calls)
    results = [unfinished_result(item, decisions.get(item.call.id), how) for item in calls]
    row = results_row(run, calls, results, ids.new_id(Kind.MESSAGE), clock.now())
    answer = unstored_answer(run)
    follow_up = [item for item in run.input if answer and not item.decisions]
    tx.messages.append([*answer, row, *follow_up])
    tx.calls.close(run.thread_id)
    return {item.call_id: item.outcome for item in results}


def _decisions(tx: Transaction, run: Run, calls: Sequence[OpenCall]) -> Mapping[str, Decision]:
    """What was decided on calls that nobody has started: by the run's own answer, and by those before it."""
    answer = unstored_answer(run)
    own = decisions_by_call(answer)
    if all(item.state is not CallState.HELD or item.call.id in own for item in calls):
        return own
    return decisions_by_call([*tx.messages.context(run.thread_id), *answer])


def _end_run(tx: Transaction, run: Run, reason: StopReason, clock: Clock) -> tuple[Run, Event]:
    signal: Signal = ending_signal(reason)
    run = endings.with_end(run, reason, signal, clock.now())
    # Clients may have seen numbers up to the highest: the gap tells that something was amiss.
    event = Event(run.id, run.highest_seq + 1, endings.run_ended_fact(run, signal))
    run = tx.runs.transition(replace(run, last_event_seq=event.seq), signal)
    tx.events.append([event])
    tx.agents.record_run_end(run)
    return run, event
