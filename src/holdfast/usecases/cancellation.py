"""Recording a cancel, inside the caller's transaction.

A running run is only marked: its worker ends it. A queued or paused run ends here.
"""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.approvals import held_request_id, undecided_calls
from holdfast.core.cancellation import Cancellation
from holdfast.core.events import Event
from holdfast.core.lifecycle import WAITING, Signal
from holdfast.core.open_calls import find_owner, owns_calls
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.errors import InvalidArgument
from holdfast.ports.clock import Ids
from holdfast.ports.store import Transaction
from holdfast.run_end import RunEnd, end_without_worker, load_decisions

_ALL_WAITING = Page(limit=100)


class CancelResult(Struct, frozen=True):
    """The run as it is now, and the events that its readers have not seen."""

    run: Run
    events: tuple[Event, ...] = ()
    # This cancel has ended the run, so no worker reports its end.
    ended_here: bool = False


def cancel_target(tx: Transaction, run: Run) -> Run:
    """The run that must end when this one is cancelled, locked like the given one. If some of the calls that the run
    asked for are answered and others are not, that is the run that now waits for the others (wire-v1 §5.5)."""
    while run.status is RunStatus.ANSWERED and (found := _find_successor(tx, run)) is not None:
        run = tx.runs.get_for_update(run.organization_id, found.id)
    return run


def _find_successor(tx: Transaction, run: Run) -> Run | None:
    """The queued or paused run that owns the calls that this run asked for, while some of them are undecided."""
    calls = tx.calls.list_open(run.thread_id)
    if held_request_id(calls) != run.approval_id:
        return None
    query = RunQuery(page=_ALL_WAITING, thread_id=run.thread_id, statuses=tuple(sorted(WAITING)))
    successor = find_owner(tx.runs.list(run.organization_id, query))
    if successor is None or not undecided_calls(calls, load_decisions(tx, successor, calls)):
        return None
    return successor


def refuse_denial(run: Run) -> None:
    """Refuse to cancel a run whose calls were held and have not been made: they would be denied."""
    if run.status in WAITING and owns_calls(run):
        raise InvalidArgument(
            f"The run {run.id} has tool calls that are for a person to decide. Cancelling it would deny them, which an "
            "agent cannot do."
        )


def record_cancel(tx: Transaction, run: Run, receipt: Cancellation, ids: Ids) -> CancelResult:
    """Mark or end the run. A run that is over, or has a cancel already, stays as it is."""
    if run.status is RunStatus.RUNNING:
        return CancelResult(tx.runs.transition(replace(run, cancellation=receipt), Signal.CANCEL))
    if run.status not in WAITING:
        return CancelResult(run)
    run = replace(run, cancellation=receipt)
    end = RunEnd(reason=StopReason.CANCELLED, now=receipt.requested_at)
    run, events = end_without_worker(tx, run, end, ids)
    return CancelResult(run, events, ended_here=True)
