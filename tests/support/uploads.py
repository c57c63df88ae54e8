"""Uploads for tests of the engine, and what the store then has."""

import io
from collections.abc import Sequence
from typing import Any

from tests.support.rig import ACTOR

from holdfast.core.agents import Actor
from holdfast.core.files import File, Folder
from holdfast.core.paging import Order, Page
from holdfast.core.passages import Passage, PassageFilter
from holdfast.ports.services import Services
from holdfast.usecases import folders, uploads
from holdfast.usecases.folders import NewFolder
from holdfast.usecases.uploads import Upload


async def make_folder(services: Services, name: str = "papers", **fields: Any) -> Folder:
    return await folders.create(services, ACTOR, NewFolder(name=name, **fields))


async def upload(
    services: Services,
    folder: Folder,
    data: bytes | str,
    file_name: str = "a.txt",
    actor: Actor = ACTOR,
    **fields: Any,
) -> File:
    data = data.encode() if isinstance(data, str) else data
    new = Upload(file_name=file_name, data=io.BytesIO(data), size=len(data), **fields)
    return (await uploads.upload(services, actor, folder.id, new)).file


async def list_passages(services: Services, file: File) -> Sequence[Passage]:
    where = PassageFilter(folder_ids=(file.folder_id,), file_id=file.id)
    found = await services.store.read(
        lambda tx: tx.passages.list(
            ACTOR.organization_id, where, Page(limit=100_000, order=Order.ASC)
        )
    )
    return sorted(found, key=lambda passage: passage.position)


async def read_file(services: Services, file: File) -> File:
    return await services.store.read(lambda tx: tx.files.get(file.organization_id, file.id))


async def list_files(services: Services, folder: Folder) -> Sequence[File]:
    page = Page(limit=1_000, order=Order.ASC)
    return await services.store.read(
        lambda tx: tx.files.list(folder.organization_id, folder.id, page)
    )
