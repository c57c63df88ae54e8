"""Archives: create, change, delete, and attach them to agents. Their passages are in ``passages`` and ``stored_passages``."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from holdfast.core.agents import Actor, AgentQuery
from holdfast.core.archives import Archive, ArchiveQuery
from holdfast.core.ids import Kind, is_id
from holdfast.core.paging import Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.errors import InvalidArgument
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import agents, embedding_choice
from holdfast.usecases.agent_views import AgentView, Relation
from holdfast.usecases.stored_passages import delete_in_parts


class NewArchive(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    deduplicate: bool = False


async def create(services: Services, actor: Actor, new: NewArchive) -> Archive:
    """Create an archive. No agent has it yet."""
    embedding = await embedding_choice.choose(services, new.embedding, new.embedding_config)
    now = services.clock.now()
    archive = Archive(
        id=services.ids.new_id(Kind.ARCHIVE),
        organization_id=actor.organization_id,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
        name=new.name,
        description=new.description,
        embedding=embedding.handle,
        embedding_config=embedding.config,
        deduplicate=new.deduplicate,
    )
    await services.store.write(lambda tx: tx.archives.add(archive))
    return archive


async def retrieve(services: Services, actor: Actor, archive_id: str) -> Archive:
    return await services.store.read(lambda tx: tx.archives.get(actor.organization_id, archive_id))


async def list_page(services: Services, actor: Actor, query: ArchiveQuery) -> Sequence[Archive]:
    def work(tx: Transaction) -> Sequence[Archive]:
        if query.agent_id is not None:
            tx.agents.get(actor.organization_id, query.agent_id)
        return tx.archives.list(actor.organization_id, query)

    return await services.store.read(work)


async def find_by_passage(
    services: Services, actor: Actor, passages: Collection[Passage]
) -> Mapping[str, Archive]:
    """The archives of these passages, by their ids."""
    ids = {passage.archive_id for passage in passages if passage.archive_id is not None}
    if not ids:
        return {}
    found = await services.store.read(lambda tx: tx.archives.find(actor.organization_id, ids))
    return {archive.id: archive for archive in found}


async def update(
    services: Services, actor: Actor, archive_id: str, changes: Mapping[str, object]
) -> Archive:
    """Update an archive. ``changes`` holds new values of ``Archive`` fields; equal values change nothing."""

    def work(tx: Transaction) -> Archive:
        archive = tx.archives.get_for_update(actor.organization_id, archive_id)
        changed = structs.replace(archive, **changes)
        if changed == archive:
            return archive
        changed = structs.replace(
            changed, updated_at=services.clock.now(), last_updated_by_id=actor.user_id
        )
        tx.archives.save(changed)
        return changed

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, archive_id: str) -> None:
    """Delete the archive with its passages. Agents that have it stay."""
    await retrieve(services, actor, archive_id)
    await delete_in_parts(services, actor, PassageFilter(archive_ids=(archive_id,)))
    await services.store.write(lambda tx: tx.archives.delete(actor.organization_id, archive_id))


async def attach(services: Services, actor: Actor, agent_id: str, archive_id: str) -> None:
    """Attach the archive to the agent; it is no error if it is attached."""
    _check_id(archive_id)

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        tx.archives.get(actor.organization_id, archive_id)
        tx.archives.attach(agent_id, archive_id, services.clock.now())

    await services.store.write(work)


async def detach(services: Services, actor: Actor, agent_id: str, archive_id: str) -> None:
    """Detach the archive; it is no error if it is not attached."""
    _check_id(archive_id)

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        tx.archives.get(actor.organization_id, archive_id)
        tx.archives.detach(agent_id, archive_id)

    await services.store.write(work)


async def list_agents(
    services: Services,
    actor: Actor,
    archive_id: str,
    page: Page,
    relations: Collection[Relation] = (),
) -> list[AgentView]:
    """The agents that the archive is attached to."""
    return await agents.list_page(
        services,
        actor,
        AgentQuery(page=page, archive_id=archive_id, show_hidden=True),
        relations,
        check=lambda tx: tx.archives.get(actor.organization_id, archive_id),
    )


def _check_id(archive_id: str) -> None:
    if not is_id(Kind.ARCHIVE, archive_id):
        raise InvalidArgument(
            f"Invalid archive ID format: {archive_id}. Expected format: 'archive-<uuid4>'"
        )
