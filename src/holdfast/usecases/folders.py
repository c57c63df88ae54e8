"""Folders of files: create, change, delete, and what is in them. Uploads are in ``uploads``, their files in ``files``."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from holdfast.core.agents import Actor
from holdfast.core.files import DEFAULT_CHUNK_TOKENS, File, Folder, FolderQuery, FolderUsage
from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.errors import AlreadyExists, NotFound
from holdfast.ports.bell import FILES, REMOVALS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import agent_files, embedding_choice

# Files of one folder that its description lists.
_MAX_LISTED_FILES = 1_000


class NewFolder(Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    instructions: str | None = None
    metadata: dict[str, Any] | None = None
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS


class FolderContents(Struct, frozen=True, kw_only=True):
    """What is in a folder. ``files``: none unless they were asked for."""

    folder: Folder
    usage: FolderUsage
    files: Sequence[File] = ()


async def create(services: Services, actor: Actor, new: NewFolder) -> Folder:
    embedding = await embedding_choice.choose(services, new.embedding, new.embedding_config)
    now = services.clock.now()
    folder = Folder(
        id=services.ids.new_id(Kind.SOURCE),
        organization_id=actor.organization_id,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
        **structs.asdict(new)
        | {"embedding": embedding.handle, "embedding_config": embedding.config},
    )

    def work(tx: Transaction) -> None:
        _refuse_taken_name(tx, folder)
        tx.folders.add(folder)

    await services.store.write(work)
    return folder


async def retrieve(services: Services, actor: Actor, folder_id: str) -> Folder:
    return await services.store.read(lambda tx: tx.folders.get(actor.organization_id, folder_id))


async def list_page(services: Services, actor: Actor, query: FolderQuery) -> Sequence[Folder]:
    return await services.store.read(lambda tx: tx.folders.list(actor.organization_id, query))


async def list_all(services: Services, actor: Actor) -> Sequence[Folder]:
    return await services.store.read(lambda tx: tx.folders.list_all(actor.organization_id))


async def count(services: Services, actor: Actor) -> int:
    return await services.store.read(lambda tx: tx.folders.count(actor.organization_id))


async def find_by_name(services: Services, actor: Actor, name: str) -> Folder:
    """Return the folder with exactly this name."""
    found = await services.store.read(
        lambda tx: tx.folders.find_by_name(actor.organization_id, name)
    )
    if found is None:
        raise NotFound(f"Source with name={name} not found.")
    return found


async def describe_contents(
    services: Services, actor: Actor, *, with_files: bool
) -> Sequence[FolderContents]:
    """Return what is in each folder, the oldest folder first."""
    oldest_first = Page(limit=_MAX_LISTED_FILES, order=Order.ASC)

    def work(tx: Transaction) -> Sequence[FolderContents]:
        usage = tx.folders.usage(actor.organization_id)
        return [
            FolderContents(
                folder=folder,
                usage=usage.get(folder.id, FolderUsage(0, 0)),
                files=tx.files.list(actor.organization_id, folder.id, oldest_first)
                if with_files
                else (),
            )
            for folder in tx.folders.list_all(actor.organization_id)
        ]

    return await services.store.read(work)


async def update(
    services: Services, actor: Actor, folder_id: str, changes: Mapping[str, Any]
) -> Folder:
    """Update a folder. ``changes`` holds new values of ``Folder`` fields; equal values change nothing. Another embedding
    model, which ``embedding_config`` names, is used for later uploads."""
    if "embedding_config" in changes:
        embedding = await embedding_choice.choose(services, None, changes["embedding_config"])
        changes = {
            **changes,
            "embedding": embedding.handle,
            "embedding_config": embedding.config,
        }

    def work(tx: Transaction) -> Folder:
        folder = tx.folders.lock(actor.organization_id, folder_id)
        changed = structs.replace(folder, **changes)
        if changed == folder:
            return folder
        changed = structs.replace(
            changed, updated_at=services.clock.now(), last_updated_by_id=actor.user_id
        )
        if changed.name != folder.name:
            _refuse_taken_name(tx, changed)
        tx.folders.save(changed)
        agent_files.mark_folder(tx, folder.id)
        return changed

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, folder_id: str) -> None:
    """Delete the folder with its files, and detach it from all agents."""
    now = services.clock.now()
    await services.store.write(
        lambda tx: agent_files.delete_folder(tx, actor.organization_id, folder_id, now)
    )
    services.bell.ring(FILES)
    services.bell.ring(REMOVALS)


async def list_agent_ids(
    services: Services, actor: Actor, folder_id: str, page: Page
) -> Sequence[str]:
    def work(tx: Transaction) -> Sequence[str]:
        tx.folders.get(actor.organization_id, folder_id)
        return tx.folders.page_of_agent_ids(actor.organization_id, folder_id, page)

    return await services.store.read(work)


async def list_passages(
    services: Services, actor: Actor, folder_id: str, page: Page
) -> tuple[Folder, Sequence[Passage], Mapping[str, File]]:
    """Return the folder, one page of the passages of its files, and these files by their ids."""
    where = PassageFilter(folder_ids=(folder_id,))

    def work(tx: Transaction) -> tuple[Folder, Sequence[Passage], Mapping[str, File]]:
        folder = tx.folders.get(actor.organization_id, folder_id)
        found = tx.passages.list(actor.organization_id, where, page)
        file_ids = list(dict.fromkeys(passage.file_id or "" for passage in found))
        files = tx.files.find(actor.organization_id, file_ids)
        return folder, found, {file.id: file for file in files}

    return await services.store.read(work)


def _refuse_taken_name(tx: Transaction, folder: Folder) -> None:
    if tx.folders.find_by_name(folder.organization_id, folder.name) is not None:
        raise AlreadyExists(f"Folder with name '{folder.name}' already exists")
