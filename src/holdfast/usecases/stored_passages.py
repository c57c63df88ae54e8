"""Passages that are stored: read, list and delete them. Storing them is in ``passages``, searching in ``archive_search``."""

from collections.abc import Sequence

from holdfast.core.agents import Actor
from holdfast.core.paging import Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.errors import InvalidArgument, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# Passages in one transaction: some tens of milliseconds, during which other writes wait on SQLite.
BATCH = 500


async def list_page(
    services: Services, actor: Actor, archive_id: str, where: PassageFilter, page: Page
) -> Sequence[Passage]:
    """One page of the passages of an archive."""

    def work(tx: Transaction) -> Sequence[Passage]:
        tx.archives.get(actor.organization_id, archive_id)
        return tx.passages.list_page(actor.organization_id, where, page)

    return await services.store.read(work)


async def list_of_agent(
    services: Services, actor: Actor, agent_id: str, contains: str | None, page: Page
) -> Sequence[Passage]:
    """Passages of all archives of the agent. Whatever the order, ``after`` means newer and ``before`` older."""

    def work(tx: Transaction) -> Sequence[Passage]:
        tx.agents.get(actor.organization_id, agent_id)
        where = PassageFilter(archive_ids=list_archive_ids(tx, agent_id), contains=contains)
        return tx.passages.list(actor.organization_id, where, page)

    return await services.store.read(work)


async def retrieve(services: Services, actor: Actor, archive_id: str, passage_id: str) -> Passage:
    return await services.store.read(lambda tx: _get_of_archive(tx, actor, archive_id, passage_id))


async def delete(services: Services, actor: Actor, archive_id: str, passage_id: str) -> None:
    def work(tx: Transaction) -> None:
        _get_of_archive(tx, actor, archive_id, passage_id)
        tx.passages.delete(actor.organization_id, passage_id)

    await services.store.write(work)


async def delete_of_agent(services: Services, actor: Actor, agent_id: str, passage_id: str) -> None:
    """Delete a passage in one of the agent's archives. For the agent there are no others."""

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        passage = tx.passages.get(actor.organization_id, passage_id)
        if passage.archive_id not in list_archive_ids(tx, agent_id):
            raise NotFound(f"Passage with id {passage_id} not found in database.")
        tx.passages.delete(actor.organization_id, passage_id)

    await services.store.write(work)


async def delete_matching(
    services: Services, actor: Actor, archive_id: str, where: PassageFilter
) -> int:
    """Delete the passages of an archive that match; return how many they were."""
    await services.store.read(lambda tx: tx.archives.get(actor.organization_id, archive_id))
    return await delete_in_parts(services, actor, where)


async def delete_in_parts(services: Services, actor: Actor, where: PassageFilter) -> int:
    """Delete the passages that match, a few in each transaction: one for all of them would let every other write wait."""
    total = 0
    while deleted := await services.store.write(
        lambda tx: tx.passages.delete_matching(actor.organization_id, where, BATCH)
    ):
        total += deleted
    return total


def list_archive_ids(tx: Transaction, agent_id: str) -> tuple[str, ...]:
    return tuple(archive.id for archive in tx.archives.list_of_agents([agent_id])[agent_id])


def _get_of_archive(tx: Transaction, actor: Actor, archive_id: str, passage_id: str) -> Passage:
    tx.archives.get(actor.organization_id, archive_id)
    passage = tx.passages.get(actor.organization_id, passage_id)
    if passage.archive_id != archive_id:
        raise InvalidArgument(f"Passage {passage_id} does not belong to archive {archive_id}")
    return passage
