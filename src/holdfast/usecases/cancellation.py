"""Putting a cancel on record, by what the run is doing. All in the transaction of the caller.

A running run is only marked: its worker ends it. A queued or waiting one ends here and now.
"""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import endings
from holdfast.core.approvals import held_request_id, undecided_calls
from holdfast.core.cancellation import Action, Cancellation, forgotten_row_ids
from holdfast.core.events import Event
from holdfast.core.ids import Kind
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Decision, decisions_by_call
from holdfast.core.open_calls import denial_rows, find_owner, owns_calls, unstored_answer
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.ports.clock import Ids
from holdfast.ports.store import Transaction

# A run of these owns calls that no tool was started for, if it owns any.
_WAITING_STATUSES = (RunStatus.PAUSED, RunStatus.QUEUED)
_ALL_WAITING = Page(limit=100)


class CancelResult(Struct, frozen=True):
    """The run as it is now, and what its readers must be told."""

    run: Run
    events: tuple[Event, ...] = ()
    # It is over by this cancel, and nobody else will say so.
    ended_here: bool = False


def cancel_target(tx: Transaction, run: Run) -> Run:
    """The run that must end when this one is cancelled. While some of the calls that it asked for are answered and
    others wait on, that is the run that waits in its place (wire-v1 §5.5). Like the one given, it is held."""
    while run.status is RunStatus.ANSWERED and (heir := _find_successor(tx, run)) is not None:
        run = tx.runs.get_for_update(run.organization_id, heir.id)
    return run


def _find_successor(tx: Transaction, run: Run) -> Run | None:
    calls = tx.calls.list_open(run.thread_id)
    if held_request_id(calls) != run.approval_id:
        return None
    query = RunQuery(page=_ALL_WAITING, thread_id=run.thread_id, statuses=_WAITING_STATUSES)
    heir = find_owner(tx.runs.list(run.organization_id, query))
    if heir is None or not undecided_calls(calls, _decisions(tx, heir)):
        # All are answered: what becomes of them is the affair of the run that carries that out.
        return None
    return heir


def record_cancel(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> CancelResult:
    match run.status:
        case RunStatus.RUNNING:
            return CancelResult(
                tx.runs.transition(replace(run, cancellation=receipt), Signal.CANCEL)
            )
        case RunStatus.QUEUED:
            return _end_queued(tx, run, replace(receipt, phase="queue"), ids)
        case RunStatus.PAUSED:
            return _end_paused(tx, run, replace(receipt, phase="approval"), ids)
        case _:
            return CancelResult(run)


def _end_queued(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> CancelResult:
    run = _with_end(run, _deny_open_calls(tx, run, receipt, ids))
    event = Event(run.id, run.last_event_seq + 1, endings.run_ended_fact(run, Signal.CANCEL))
    run = tx.runs.transition(replace(run, last_event_seq=event.seq), Signal.CANCEL)
    tx.events.append([event])
    tx.agents.record_run_end(run)
    return CancelResult(run, (event,), ended_here=True)


def _end_paused(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> CancelResult:
    """Deny what was held, on the thread that waits for it; the run's own log has ended long ago."""
    receipt = _deny_open_calls(tx, run, receipt, ids)
    if receipt.action is Action.ROLLBACK:
        context = tx.messages.context(run.thread_id)
        tx.messages.hide(run.thread_id, forgotten_row_ids(context, run.id))
    run = tx.runs.transition(_with_end(run, receipt), Signal.CANCEL)
    tx.agents.record_run_end(run)
    return CancelResult(run, ended_here=True)


def _deny_open_calls(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> Cancellation:
    """The receipt when none of the run's open calls is carried out. Those that nobody answered are denied; an answer
    that waited for its turn was given all the same."""
    calls = tx.calls.list_open(run.thread_id) if owns_calls(run) else ()
    if not calls:
        return receipt
    row_ids = (ids.new_id(Kind.MESSAGE), ids.new_id(Kind.MESSAGE))
    rows = denial_rows(run, calls, _decisions(tx, run), row_ids, receipt.requested_at)
    tx.messages.append(rows)
    tx.calls.close(run.thread_id)
    outcomes = {item.call_id: item.outcome for row in rows for item in row.tool_returns}
    return replace(receipt, calls=outcomes)


def _decisions(tx: Transaction, run: Run) -> dict[str, Decision]:
    """What was decided on the open calls that the run owns."""
    return decisions_by_call([*tx.messages.context(run.thread_id), *unstored_answer(run)])


def _with_end(run: Run, receipt: Cancellation) -> Run:
    run = replace(run, cancellation=receipt)
    return endings.with_end(run, StopReason.CANCELLED, Signal.CANCEL, receipt.requested_at)
