"""Compacting a thread's context on request. The work itself is done by ``engine/compact``.

A compaction is a run: it waits for its turn on the thread, can be read, cancelled and recovered after a crash, and
reports its usage. No other run changes the context at the same time.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import compaction, context, summaries
from holdfast.core.agents import Actor
from holdfast.core.messages import Role
from holdfast.core.runs import IdempotencyKey, Run, RunFailure, RunRequest, StopReason
from holdfast.errors import CallerError, Conflict
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.messages import NewSend, Reply

RUN_KIND = "compaction"
# V1's texts (wire-v1 §7.9).
NO_MESSAGES = "No in-context messages found for this conversation."
CANNOT_SHRINK = (
    "Summarization failed to reduce the number of messages. You may not have enough messages to compact or need to use "
    "a different CompactionSettings (e.g. using `all` mode)."
)


class Compaction(Struct, frozen=True):
    """The summary, and the number of messages in the context before and after."""

    summary: str
    messages_before: int
    messages_after: int


async def start(
    services: Services,
    actor: Actor,
    thread_id: str,
    overrides: dict[str, Any] | None = None,
    key: IdempotencyKey | None = None,
    *,
    may_be_empty: bool = False,
) -> Run | Compaction:
    """Start to replace the oldest messages of the context by a summary. ``overrides`` takes precedence over the agent's
    settings. Returns the result at once if there is nothing to do. A context with nothing but the system message is an
    error unless it ``may_be_empty``."""
    found = await services.store.read(
        lambda tx: _plan(tx, services, actor, thread_id, overrides, may_be_empty=may_be_empty)
    )
    if isinstance(found, Compaction):
        return found
    return await messages.send(services, actor, replace(found, idempotency_key=key))


async def wait(services: Services, run: Run) -> Compaction | RunFailure:
    return await _read_result(services, await messages.wait(services, run))


def _plan(
    tx: Transaction,
    services: Services,
    actor: Actor,
    thread_id: str,
    overrides: dict[str, Any] | None,
    *,
    may_be_empty: bool = False,
) -> Compaction | NewSend:
    """The run to send, or the result if there is nothing to compact."""
    thread = tx.threads.get(actor.organization_id, thread_id)
    agent = tx.agents.get(actor.organization_id, thread.agent_id)
    rows = tx.messages.context(thread_id)
    if may_be_empty and len(rows) <= 1:
        return Compaction("", len(rows), len(rows))
    if not rows:
        raise CallerError(NO_MESSAGES)
    if len(rows) > 1 and all(row.role is Role.SUMMARY for row in rows[1:]):
        return Compaction(summaries.latest_summary(rows), len(rows), len(rows))
    # Replacing one message by one summary would leave as many messages as before.
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
        run_id = reply.run.id
        raise Conflict(f"The compaction was cancelled (run {run_id}); nothing was changed.", run_id)
    for row in reply.messages:
        packed = summaries.unpack(row)
        stats = packed.compaction_stats
        if stats is not None:
            return Compaction(
                packed.summary, stats.messages_count_before, stats.messages_count_after
            )
    # Another run compacted or reset the context while this one waited for its turn.
    rows = await services.store.read(lambda tx: tx.messages.context(reply.run.thread_id))
    return Compaction(summaries.latest_summary(rows), len(rows), len(rows))
