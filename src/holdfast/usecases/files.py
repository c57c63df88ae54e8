"""Files of folders, as they are listed and deleted. Uploads are in ``uploads``."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.files import ContentStatus, File
from holdfast.core.paging import Page
from holdfast.errors import InvalidArgument, NotFound
from holdfast.ports.bell import FILES, REMOVALS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import agent_files

# Of the texts that one list may show: they are in memory at once.
MAX_LISTED_CHARS: Final = 20_000_000


class FileView(Struct, frozen=True, kw_only=True):
    """A file as callers see it. ``text``: None unless it was asked for and is there."""

    file: File
    text: str | None = None


async def list_page(
    services: Services, actor: Actor, folder_id: str, page: Page, *, with_text: bool
) -> Sequence[FileView]:
    def work(tx: Transaction) -> Sequence[FileView]:
        tx.folders.get(actor.organization_id, folder_id)
        found = tx.files.list(actor.organization_id, folder_id, page)
        if with_text:
            _refuse_long_answer(tx, found)
        return [_view(tx, file, with_text=with_text) for file in found]

    return await services.store.read(work)


async def retrieve(
    services: Services, actor: Actor, file_id: str, folder_id: str | None, *, with_text: bool
) -> FileView:
    """Return the file. NotFound if it is not in the folder; None: in any."""

    def work(tx: Transaction) -> FileView:
        file = _get(tx, actor, file_id, folder_id)
        return _view(tx, file, with_text=with_text)

    return await services.store.read(work)


async def delete(services: Services, actor: Actor, file_id: str, folder_id: str) -> None:
    """Delete the file, and take it from all agents. If it is being processed, that ends."""

    def work(tx: Transaction) -> None:
        _get(tx, actor, file_id, folder_id)
        agent_files.delete_file(tx, actor.organization_id, file_id)

    await services.store.write(work)
    services.bell.ring(FILES)
    services.bell.ring(REMOVALS)


def _get(tx: Transaction, actor: Actor, file_id: str, folder_id: str | None) -> File:
    found = tx.files.find(actor.organization_id, [file_id])
    if not found or folder_id not in (None, found[0].folder_id):
        where = "" if folder_id is None else f" in folder {folder_id}"
        raise NotFound(f"File with id={file_id} not found{where}")
    return found[0]


def _refuse_long_answer(tx: Transaction, files: Sequence[File]) -> None:
    characters = 0
    for file in files:
        characters += tx.contents.get(file.content_id).characters
        if characters > MAX_LISTED_CHARS and len(files) > 1:
            raise InvalidArgument(
                f"The texts of these files have more than {MAX_LISTED_CHARS} characters. Ask for fewer files at once."
            )


def _view(tx: Transaction, file: File, *, with_text: bool) -> FileView:
    if not with_text or tx.contents.get(file.content_id).status is not ContentStatus.EXTRACTED:
        return FileView(file=file)
    return FileView(file=file, text=tx.contents.read_text(file.content_id))
