"""How much space vectors take."""

from holdfast.core.agents import Actor
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction


async def count_bytes(services: Services, actor: Actor) -> int:
    """The bytes of the vectors of all passages and messages."""

    def work(tx: Transaction) -> int:
        organization_id = actor.organization_id
        return tx.passages.count_vector_bytes(organization_id) + tx.messages.count_vector_bytes(
            organization_id
        )

    return await services.store.read(work)
