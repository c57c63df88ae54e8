"""Runs: what one did, what it used, which there are; and stopping one. How is in ``cancellation``."""

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
from holdfast.core.runs import Run, RunQuery, RunStatus, Step, StepQuery, Usage
from holdfast.errors import CallerError, Conflict, NotFound, RunMoved
from holdfast.ports.bell import CALLBACKS, CANCELS
from holdfast.ports.house import House
from holdfast.ports.store import Transaction
from holdfast.usecases import cancellation, run_ends
from holdfast.usecases.cancellation import Cancelled

log = logging.getLogger(__name__)

# A cancel without ids stops at most so many runs at once (wire-v1 §5.5).
MAX_CANCELLED = 100
# How long a cancel waits to see its run end: a socket to close, a process group to kill, a commit.
SEEN_TO_END_SECONDS = 5.0


async def retrieve(house: House, actor: Actor, run_id: str) -> Run:
    return await house.store.read(lambda tx: tx.runs.get(actor.organization_id, run_id))


async def list_runs(house: House, actor: Actor, query: RunQuery) -> Sequence[Run]:
    return await house.store.read(lambda tx: tx.runs.list(actor.organization_id, query))


async def annotate(house: House, actor: Actor, run_id: str, metadata: Mapping[str, Any]) -> Run:
    """Add keys to the run's metadata, whatever the run is doing."""
    return await house.store.write(
        lambda tx: tx.runs.annotate(actor.organization_id, run_id, metadata)
    )


async def remove(house: House, actor: Actor, run_id: str) -> None:
    """Forget the run. One that is not over is stopped before: what it waits for would be nobody's."""
    run = await retrieve(house, actor, run_id)
    if run.status not in FINAL:
        run = await cancel(house, actor, run_id, reason="deleted")
    if not is_over(run.status):
        raise Conflict(f"The run {run_id} is being stopped. Delete it once it has ended.")
    await house.store.write(lambda tx: tx.runs.remove(actor.organization_id, run_id))


async def messages(house: House, actor: Actor, run_id: str, page: Page) -> Sequence[Message]:
    """The rows that the run stored."""

    def load(tx: Transaction) -> Sequence[Message]:
        tx.runs.get(actor.organization_id, run_id)
        return tx.messages.list(actor.organization_id, page, run_id=run_id)

    return await house.store.read(load)


async def steps(house: House, actor: Actor, run_id: str, page: Page) -> Sequence[Step]:
    def load(tx: Transaction) -> Sequence[Step]:
        tx.runs.get(actor.organization_id, run_id)
        return tx.steps.list(actor.organization_id, StepQuery(page=page, run_id=run_id))

    return await house.store.read(load)


async def usage(house: House, actor: Actor, run_id: str) -> tuple[Usage, Costs]:
    """The tokens of all steps of the run, and what they cost."""

    def load(tx: Transaction) -> tuple[Usage, Costs]:
        run = tx.runs.get(actor.organization_id, run_id)
        query = StepQuery(page=Page(limit=1), run_id=run_id)
        return run.usage, tx.steps.costs(actor.organization_id, query)

    return await house.store.read(load)


async def cancel(
    house: House,
    actor: Actor,
    run_id: str,
    *,
    agent_id: str | None = None,
    reason: str | None = None,
    action: Action = Action.KEEP,
) -> Run:
    """Put the cancel on record, stop the run, and see it end. A run that is over stays as it is; the answer is the
    run that was stopped, which need not be the one that asked (``cancellation.meant``)."""
    receipt = Cancellation(
        requested_at=house.clock.now(), requested_by=actor.user_id, reason=reason, action=action
    )

    def work(tx: Transaction) -> Cancelled:
        run = tx.runs.hold(actor.organization_id, run_id)
        if agent_id not in (None, run.agent_id):
            raise NotFound(f"Run with ID {run_id} not found")
        return cancellation.put_on_record(tx, cancellation.meant(tx, run), receipt, house.ids)

    async def record_and_ring() -> Run:
        cancelled = await house.store.write(work)
        house.dispatch.withdraw(cancelled.run.id)
        house.events.publish(cancelled.events)
        _tell(house, cancelled)
        if cancelled.run.status is RunStatus.CANCELLING:
            house.bell.ring(CANCELS)
        elif cancelled.run.request.callback_url is not None:
            house.bell.ring(CALLBACKS)
        return cancelled.run

    # Whoever asked may go away meanwhile: what is on record must be heard.
    run = await asyncio.shield(record_and_ring())
    if run.status is not RunStatus.CANCELLING:
        return run
    await _see_it_end(house, run_id)
    return await retrieve(house, actor, run_id)


def _tell(house: House, cancelled: Cancelled) -> None:
    """What operators are told; a run that nobody carried has ended by this alone."""
    run = cancelled.run
    if run.status is RunStatus.CANCELLING:
        log.info("run.cancelling", extra={"run_id": run.id, "agent_id": run.agent_id})
    elif cancelled.ended_here:
        run_ends.tell(house, run)


async def _see_it_end(house: House, run_id: str) -> None:
    """The cancel is on record, so it will end; who asked should find it ended, if that is a matter of moments."""
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(SEEN_TO_END_SECONDS),
            aclosing(house.events.follow(run_id)) as batches,
        ):
            async for _ in batches:
                pass


async def cancel_all(
    house: House,
    actor: Actor,
    runs: Sequence[str],
    *,
    agent_id: str,
    reason: str | None = None,
    action: Action = Action.KEEP,
) -> dict[str, bool]:
    """Cancel each of these; whether it could be. One that cannot does not spare the others."""
    done: dict[str, bool] = {}
    for run_id in runs:
        try:
            await cancel(house, actor, run_id, agent_id=agent_id, reason=reason, action=action)
        except (CallerError, RunMoved):
            done[run_id] = False
        else:
            done[run_id] = True
    return done


async def cancellable(
    house: House, actor: Actor, *, agent_id: str, thread_id: str | None = None
) -> Sequence[str]:
    """What a cancel without ids means: the live runs, newest first; else those that wait for a person."""

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

    return await house.store.read(load)
