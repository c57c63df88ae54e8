"""Ending a run that cannot continue, whatever makes every attempt fail.

This reads only the run, its calls and its steps, and the history only where the end depends on it: what broke the
attempts must not break the end.
"""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import Event
from holdfast.core.lifecycle import is_over
from holdfast.core.runs import Run, RunFailure, RunStatus, StopReason
from holdfast.core.servers import Claim
from holdfast.core.steps import Step, StepStatus
from holdfast.errors import RunFenced
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.store import Transaction
from holdfast.run_end import RunEnd, end_without_worker

_FAILURE_SUMMARY = "The run was given up."


class ForcedEnd(Struct, frozen=True):
    run: Run
    # The steps that were unfinished.
    steps: tuple[Step, ...]
    events: tuple[Event, ...]


def force_end(
    tx: Transaction, claim: Claim, why: str, *, clock: Clock, ids: Ids
) -> ForcedEnd | None:
    """End the run as failed, or as cancelled if a cancel is recorded; None if it is over already. RunFenced if the claim
    is no longer the last one."""
    run = tx.runs.find(claim.run_id)
    if run is None or is_over(run.status):
        return None
    if run.fence != claim.fence:
        raise RunFenced(run.id)
    cancelled = run.status is RunStatus.CANCELLING
    reason = StopReason.CANCELLED if cancelled else StopReason.ERROR
    failure = None if cancelled else RunFailure("internal_error", _FAILURE_SUMMARY, why)
    status = StepStatus.CANCELLED if cancelled else StepStatus.FAILED
    steps = tuple(
        replace(step, status=status, failure=failure, stop_reason=reason)
        for step in tx.steps.list_pending(run.id)
    )
    # Clients may have seen numbers up to the highest. The gap in the numbers shows that something went wrong.
    run = replace(run, last_event_seq=run.highest_seq)
    end = RunEnd(reason=reason, now=clock.now(), failure=failure, steps=steps)
    run, events = end_without_worker(tx, run, end, ids)
    return ForcedEnd(run, steps, events)
