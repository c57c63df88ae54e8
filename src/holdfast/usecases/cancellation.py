"""Putting a cancel on record, by what the run is doing. All in the transaction of the caller.

A running run is only marked: its worker ends it. A queued or waiting one ends here and now.
"""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import endings
from holdfast.core.cancellation import Action, Cancellation, denial_rows, without
from holdfast.core.events import Event
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import CallState, decided
from holdfast.core.runs import Run, RunStatus, StopReason
from holdfast.ports.clock import Ids
from holdfast.ports.store import Transaction


class Cancelled(Struct, frozen=True):
    """The run as it is now, and what its readers must be told."""

    run: Run
    events: tuple[Event, ...] = ()
    # It is over by this cancel, and nobody else will say so.
    ended_here: bool = False


def put_on_record(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> Cancelled:
    match run.status:
        case RunStatus.RUNNING:
            return Cancelled(tx.runs.change(replace(run, cancellation=receipt), Signal.CANCEL))
        case RunStatus.QUEUED:
            return _end_queued(tx, run, replace(receipt, phase="queue"), ids)
        case RunStatus.PAUSED:
            return _end_paused(tx, run, replace(receipt, phase="approval"), ids)
        case _:
            return Cancelled(run)


def _end_queued(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> Cancelled:
    """An answer that will not be carried out leaves its calls to nobody else: they are denied."""
    if run.answers:
        receipt = _with_denials(tx, run, receipt, ids)
    run = _ended(run, receipt)
    event = Event(run.id, run.last_event_seq + 1, endings.told(run, Signal.CANCEL))
    run = tx.runs.change(replace(run, last_event_seq=event.seq), Signal.CANCEL)
    tx.events.append([event])
    _note(tx, run)
    return Cancelled(run, (event,), ended_here=True)


def _end_paused(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> Cancelled:
    """Deny what was held, on the thread that waits for it; the run's own log has ended long ago."""
    receipt = _with_denials(tx, run, receipt, ids)
    if receipt.action is Action.ROLLBACK:
        context = tx.messages.context(run.thread_id)
        tx.messages.set_context(run.thread_id, without(context, run.id))
    run = tx.runs.change(_ended(run, receipt), Signal.CANCEL)
    _note(tx, run)
    return Cancelled(run, ended_here=True)


def _with_denials(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> Cancellation:
    """The receipt when no open call of the thread is carried out, in the name of this run. Those that nobody
    answered are denied."""
    calls = tx.calls.open(run.thread_id)
    before = decided(tx.messages.context(run.thread_id))
    held = next(item for item in calls if item.state is CallState.HELD)
    home = tx.messages.get(run.organization_id, held.message_id)
    row_ids = (ids.mint(Kind.MESSAGE), ids.mint(Kind.MESSAGE))
    now = receipt.requested_at
    rows = denial_rows(calls, run.id, row_ids, now, home=home, before=before)
    tx.messages.append(rows)
    tx.calls.close(run.thread_id)
    outcomes = {item.call_id: item.outcome for row in rows for item in row.tool_returns}
    return replace(receipt, calls=outcomes)


def _ended(run: Run, receipt: Cancellation) -> Run:
    run = replace(run, cancellation=receipt)
    return endings.ended(run, StopReason.CANCELLED, Signal.CANCEL, receipt.requested_at)


def _note(tx: Transaction, run: Run) -> None:
    tx.agents.note_run_end(
        run.agent_id,
        stop_reason=StopReason.CANCELLED,
        completed_at=run.completed_at,
        duration_ms=(run.total_duration_ns or 0) // 1_000_000,
    )
