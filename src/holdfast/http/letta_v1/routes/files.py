"""Files of folders, and their upload (memory-v1 §5); also under ``/v1/sources``, the old name of folders."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response, UploadFile

from holdfast.core.file_names import MAX_FILE_NAME_CHARS, DuplicateHandling
from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_response import (
    describe_empty,
    describe_response,
    empty_response,
    json_response,
    list_response,
)
from holdfast.http.letta_v1.parameters.ids import FileId, FolderId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.files import FileMetadata
from holdfast.http.letta_v1.to_wire.files import file_state, uploaded_state
from holdfast.http.uploads import UploadRoute
from holdfast.usecases import files, uploads
from holdfast.usecases.files import FileView
from holdfast.usecases.uploads import Upload

router = APIRouter(prefix="/v1/folders/{folder_id}", tags=["folders"])
sources_router = APIRouter(prefix="/v1/sources/{folder_id}", tags=["sources"], deprecated=True)
upload_router = APIRouter(
    prefix="/v1/folders/{folder_id}", tags=["folders"], route_class=UploadRoute
)
sources_upload_router = APIRouter(
    prefix="/v1/sources/{folder_id}", tags=["sources"], route_class=UploadRoute, deprecated=True
)

_PAGING: dict[str, Any] = {"limit": 1_000, "order_by": ("created_at", "updated_at", "name")}
_SKIPPED = {"X-Upload-Result": "skipped"}

IncludeContent = Annotated[bool, Query(description="With the text of the file.")]


@upload_router.post("/upload", responses=describe_response(FileMetadata))
@sources_upload_router.post("/upload", responses=describe_response(FileMetadata))
async def upload_file(
    *,
    folder_id: FolderId,
    file: UploadFile,
    services: ServicesDep,
    actor: ActorDep,
    duplicate_handling: Annotated[
        DuplicateHandling,
        Query(description="What happens if a file was uploaded under this name already."),
    ] = DuplicateHandling.SUFFIX,
    name: Annotated[
        str | None,
        Query(max_length=MAX_FILE_NAME_CHARS, description="The name, instead of that of the file."),
    ] = None,
) -> Response:
    """Store a file. Its text is extracted afterwards: ``processing_status`` tells how far that is."""
    new = Upload(
        file_name=file.filename or "",
        data=file.file,
        size=file.size or 0,
        media_type=file.content_type,
        name=name,
        on_duplicate=duplicate_handling,
    )
    uploaded = await uploads.upload(services, actor, folder_id, new)
    headers = _SKIPPED if uploaded.is_skipped else None
    return json_response(uploaded_state(uploaded), headers=headers)


@router.get("/files", responses=describe_response(list[FileMetadata]))
async def list_files(
    folder_id: FolderId,
    page: Annotated[Page, Depends(paging(Kind.FILE, **_PAGING))],
    services: ServicesDep,
    actor: ActorDep,
    include_content: IncludeContent = False,
) -> Response:
    found = await files.list_page(services, actor, folder_id, page, with_text=include_content)
    return await list_response(found, file_state)


@sources_router.get("/files", responses=describe_response(list[FileMetadata]))
async def list_source_files(
    *,
    folder_id: FolderId,
    page: Annotated[Page, Depends(paging(Kind.FILE, order=Order.ASC, **_PAGING))],
    services: ServicesDep,
    actor: ActorDep,
    include_content: IncludeContent = False,
    check_status_updates: Annotated[  # noqa: ARG001 - a status is always the newest here
        bool, Query(description="Has no effect: a status is always the newest.")
    ] = True,
) -> Response:
    found = await files.list_page(services, actor, folder_id, page, with_text=include_content)
    return await list_response(found, file_state)


@router.get("/files/{file_id}", responses=describe_response(FileMetadata))
async def retrieve_file(
    folder_id: FolderId,
    file_id: FileId,
    services: ServicesDep,
    actor: ActorDep,
    include_content: IncludeContent = False,
) -> Response:
    found = await files.retrieve(services, actor, file_id, folder_id, with_text=include_content)
    return await _file_response(found)


@sources_router.get("/files/{file_id}", responses=describe_response(FileMetadata))
async def retrieve_source_file(
    folder_id: FolderId,  # noqa: ARG001 - V1 does not look at it
    file_id: FileId,
    services: ServicesDep,
    actor: ActorDep,
    include_content: IncludeContent = False,
) -> Response:
    """A file of any folder."""
    found = await files.retrieve(services, actor, file_id, None, with_text=include_content)
    return await _file_response(found)


@router.delete("/{file_id}", status_code=204, responses=describe_empty())
@sources_router.delete("/{file_id}", status_code=204, responses=describe_empty())
async def delete_file(
    folder_id: FolderId, file_id: FileId, services: ServicesDep, actor: ActorDep
) -> Response:
    await files.delete(services, actor, file_id, folder_id)
    return empty_response()


async def _file_response(view: FileView) -> Response:
    """A long text is encoded on a thread, so that other requests are answered meanwhile."""
    return await asyncio.to_thread(lambda: json_response(file_state(view)))
