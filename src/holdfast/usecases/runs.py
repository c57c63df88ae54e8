"""Reading runs, their messages, steps and usage; cancelling and deleting them. ``cancellation`` records a cancel."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from holdfast.core.agents import Actor
from holdfast.core.cancellation import Action, Cancellation
from holdfast.core.lifecycle import FINAL, LIVE, is_over
from holdfast.core.messages import Message
from holdfast.core.paging import Page
from holdfast.core.prices import Costs
from holdfast.core.runs import Run, RunQuery, RunStatus, Usage
from holdfast.core.steps import Step, StepQuery
from holdfast.errors import CallerError, Conflict, NotFound, StaleRun
from holdfast.ports.bell import CALLBACKS, CANCELS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.run_end import report_run_end
from holdfast.usecases import cancellation
from holdfast.usecases.cancellation import CancelResult

log = logging.getLogger(__name__)

# A cancel without ids stops at most so many runs at once (wire-v1 §5.5).
MAX_CANCELLED = 100
# How long a cancel waits for the end of its run: a socket is closed, a process group killed, a transaction committed.
CANCEL_WAIT_SECONDS = 5.0


async def retrieve(services: Services, actor: Actor, run_id: str) -> Run:
    return await services.store.read(lambda tx: tx.runs.get(actor.organization_id, run_id))


async def list_runs(services: Services, actor: Actor, query: RunQuery) -> Sequence[Run]:
    return await services.store.read(lambda tx: tx.runs.list(actor.organization_id, query))


async def annotate(
    services: Services, actor: Actor, run_id: str, metadata: Mapping[str, Any]
) -> Run:
    """Add keys to the run's metadata, whatever the run is doing."""
    return await services.store.write(
        lambda tx: tx.runs.add_metadata(actor.organization_id, run_id, metadata)
    )


async def remove(services: Services, actor: Actor, run_id: str) -> None:
    """Delete the run. A run that is not over is cancelled first, so that no open calls stay without an owner."""
    run = await retrieve(services, actor, run_id)
    if run.status not in FINAL:
        run = await cancel(services, actor, run_id, reason="deleted")
    if not is_over(run.status):
        raise Conflict(f"The run {run_id} is being stopped. Delete it once it has ended.")
    await services.store.write(lambda tx: tx.runs.delete(actor.organization_id, run_id))


async def list_messages(
    services: Services, actor: Actor, run_id: str, page: Page
) -> Sequence[Message]:
    """The rows that the run stored."""

    def load(tx: Transaction) -> Sequence[Message]:
        tx.runs.get(actor.organization_id, run_id)
        return tx.messages.list(actor.organization_id, page, run_id=run_id)

    return await services.store.read(load)


async def list_steps(services: Services, actor: Actor, run_id: str, page: Page) -> Sequence[Step]:
    def load(tx: Transaction) -> Sequence[Step]:
        tx.runs.get(actor.organization_id, run_id)
        return tx.steps.list(actor.organization_id, StepQuery(page=page, run_id=run_id))

    return await services.store.read(load)


async def load_usage(services: Services, actor: Actor, run_id: str) -> tuple[Usage, Costs]:
    """The tokens of all steps of the run, and what they cost."""

    def load(tx: Transaction) -> tuple[Usage, Costs]:
        run = tx.runs.get(actor.organization_id, run_id)
        query = StepQuery(page=Page(limit=1), run_id=run_id)
        return run.usage, tx.steps.sum_costs(actor.organization_id, query)

    return await services.store.read(load)


async def cancel(
    services: Services,
    actor: Actor,
    run_id: str,
    *,
    agent_id: str | None = None,
    reason: str | None = None,
    action: Action = Action.KEEP,
    may_deny: bool = True,
) -> Run:
    """Record the cancel, stop the run, and wait for its end. A run that is over stays as it is. Returns the run that
    was cancelled, which may be a successor of the given one (``cancellation.cancel_target``). ``may_deny``: whether the
    caller may deny held calls, which a cancel does."""
    receipt = Cancellation(
        requested_at=services.clock.now(), requested_by=actor.user_id, reason=reason, action=action
    )

    def work(tx: Transaction) -> CancelResult:
        run = tx.runs.get_for_update(actor.organization_id, run_id)
        if agent_id not in (None, run.agent_id):
            raise NotFound(f"Run with ID {run_id} not found")
        target = cancellation.cancel_target(tx, run)
        if not may_deny:
            cancellation.refuse_denial(target)
        return cancellation.record_cancel(tx, target, receipt, services.ids)

    async def record_and_ring() -> Run:
        cancelled = await services.store.write(work)
        services.events.publish(cancelled.events)
        _report_cancel(services, cancelled)
        if cancelled.run.status is RunStatus.CANCELLING:
            _ring_cancel(services, cancelled.run)
        elif cancelled.run.request.callback_url is not None:
            services.bell.ring(CALLBACKS)
        return cancelled.run

    # The caller may disconnect meanwhile: a recorded cancel must still reach the worker.
    run = await asyncio.shield(record_and_ring())
    if run.status is not RunStatus.CANCELLING:
        return run
    await _wait_until_ended(services, run_id)
    return await retrieve(services, actor, run_id)


def _ring_cancel(services: Services, run: Run) -> None:
    """Wake the worker of the run. Other servers need not be woken if it is here."""
    claimant = services.lease.claimant
    is_here = claimant is not None and claimant.server_id == run.owner_id
    services.bell.ring(CANCELS, here_only=is_here)


def _report_cancel(services: Services, cancelled: CancelResult) -> None:
    """Log the cancel; the end of a run that no worker works on is reported here too."""
    run = cancelled.run
    if run.status is RunStatus.CANCELLING:
        log.info("run.cancelling", extra={"run_id": run.id, "agent_id": run.agent_id})
    elif cancelled.ended_here:
        report_run_end(services.telemetry, run)


async def _wait_until_ended(services: Services, run_id: str) -> None:
    """Wait for the end of a run whose cancel is recorded, but not for long: it will end anyway."""
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(CANCEL_WAIT_SECONDS),
            aclosing(services.events.follow(run_id)) as batches,
        ):
            async for _ in batches:
                pass


async def cancel_all(
    services: Services,
    actor: Actor,
    runs: Sequence[str],
    *,
    agent_id: str,
    reason: str | None = None,
    action: Action = Action.KEEP,
) -> dict[str, bool]:
    """Cancel each of these runs, and return whether it was possible. A run that cannot be cancelled does not affect
    the others."""
    done: dict[str, bool] = {}
    for run_id in runs:
        try:
            await cancel(services, actor, run_id, agent_id=agent_id, reason=reason, action=action)
        except (CallerError, StaleRun):
            done[run_id] = False
        else:
            done[run_id] = True
    return done


async def list_cancellable(
    services: Services, actor: Actor, *, agent_id: str, thread_id: str | None = None
) -> Sequence[str]:
    """The runs that a cancel without ids means: the live ones, newest first, or else those that wait for a person."""

    def load(tx: Transaction) -> Sequence[str]:
        tx.agents.get(actor.organization_id, agent_id)
        for statuses in (tuple(sorted(LIVE)), (RunStatus.PAUSED,)):
            query = RunQuery(
                page=Page(limit=MAX_CANCELLED),
                agent_ids=(agent_id,),
                thread_id=thread_id,
                statuses=statuses,
            )
            if runs := tx.runs.list(actor.organization_id, query):
                return [run.id for run in runs]
        return []

    return await services.store.read(load)
