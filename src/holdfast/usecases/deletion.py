"""Deleting a long history in parts. One transaction for all of it would let every other run wait."""

from holdfast.core.agents import Actor
from holdfast.ports.services import Services

# Rows of each kind in one transaction: some tens of milliseconds.
BATCH = 1_000


async def delete_history(
    services: Services, actor: Actor, agent_id: str, thread_id: str | None = None
) -> None:
    """Delete what no run reads any more, before the agent or the conversation itself is deleted: messages outside of the
    context, and runs that are over. If this is interrupted, the rest still works and can be deleted later."""
    while await services.store.write(
        lambda tx: tx.threads.delete_history(actor.organization_id, agent_id, thread_id, BATCH)
    ):
        pass
