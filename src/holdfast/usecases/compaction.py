"""Making a thread's context smaller because somebody asked for it. How is the engine's affair (``engine/compact``).

It is a run like any other: it waits for its turn on the thread, can be read, cancelled and picked up after a
crash, and shows what it took. So nothing else can touch the context meanwhile.
"""

from typing import Any

from msgspec import Struct

from holdfast.core import compaction, context, summaries
from holdfast.core.agents import Actor
from holdfast.core.messages import Role
from holdfast.core.runs import RunFailure, RunRequest, StopReason
from holdfast.errors import CallerError, Conflict
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.messages import NewSend, Reply

RUN_KIND = "compaction"
CANNOT_SHRINK = (
    "Summarization failed to reduce the number of messages. There is too little in the context that may leave it: "
    "calls that wait for approval stay, and one message is no more than its summary."
)


class Compaction(Struct, frozen=True):
    """What the model is told of what was said, and how many messages it was shown before and is shown now."""

    summary: str
    messages_before: int
    messages_after: int


async def compact(
    services: Services, actor: Actor, thread_id: str, overrides: dict[str, Any] | None = None
) -> Compaction | RunFailure:
    """Hide the oldest messages of the thread behind a summary; ``wish`` goes over the agent's own settings."""
    found = await services.store.read(lambda tx: _plan(tx, services, actor, thread_id, overrides))
    if isinstance(found, Compaction):
        return found
    run = await messages.send(services, actor, found)
    return await _read_result(services, await messages.wait(services, run))


def _plan(
    tx: Transaction,
    services: Services,
    actor: Actor,
    thread_id: str,
    overrides: dict[str, Any] | None,
) -> Compaction | NewSend:
    """The run to be sent, or how things are if there is nothing to do."""
    thread = tx.threads.get(actor.organization_id, thread_id)
    agent = tx.agents.get(actor.organization_id, thread.agent_id)
    rows = tx.messages.context(thread_id)
    if all(row.role is Role.SUMMARY for row in rows[1:]):
        return Compaction(summaries.latest_summary(rows), len(rows), len(rows))
    # One row less and one summary more is as much as before.
    if compaction.evictable_count(rows) <= 1:
        raise CallerError(CANNOT_SHRINK)
    summariser = services.catalogue.summary_handle(agent.model.handle)
    settings = context.update_compaction_settings(
        agent.compaction_settings,
        overrides,
        summary_handle=summariser,
        new_summary_handle=summariser,
    )
    request = RunRequest(compaction=settings, include_compaction_messages=True)
    return NewSend(agent_id=agent.id, thread_id=thread_id, input=(), request=request, kind=RUN_KIND)


async def _read_result(services: Services, reply: Reply) -> Compaction | RunFailure:
    if reply.ended.failure is not None:
        return reply.ended.failure
    if reply.ended.stop_reason is StopReason.CANCELLED:
        raise Conflict(f"The compaction was cancelled (run {reply.run.id}); nothing was changed.")
    for row in reply.messages:
        packed = summaries.unpack(row)
        stats = packed.compaction_stats
        if stats is not None:
            return Compaction(
                packed.summary, stats.messages_count_before, stats.messages_count_after
            )
    # The thread was made smaller, or emptied, while this waited for its turn.
    rows = await services.store.read(lambda tx: tx.messages.context(reply.run.thread_id))
    return Compaction(summaries.latest_summary(rows), len(rows), len(rows))
