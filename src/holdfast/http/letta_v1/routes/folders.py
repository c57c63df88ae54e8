"""Folders (memory-v1 §5), and ``/v1/sources``, their old name. Their files are in ``routes.files``."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from holdfast.core.files import FolderQuery
from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.folders import folder_changes, new_folder
from holdfast.http.letta_v1.parameters.ids import FolderId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.folders import (
    Folder,
    FolderCreate,
    FoldersSummary,
    FolderUpdate,
)
from holdfast.http.letta_v1.schemas.passages import Passage
from holdfast.http.letta_v1.to_wire.folders import folder_state, folders_summary
from holdfast.http.letta_v1.to_wire.passages import file_passage_state
from holdfast.usecases import folders

router = APIRouter(prefix="/v1/folders", tags=["folders"], route_class=JsonRoute)
sources_router = APIRouter(
    prefix="/v1/sources", tags=["sources"], route_class=JsonRoute, deprecated=True
)


async def _folder_query(
    page: Annotated[
        Page,
        Depends(
            paging(
                Kind.SOURCE,
                limit=50,
                order=Order.ASC,
                order_by=("created_at", "updated_at", "name"),
            )
        ),
    ],
    name: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
) -> FolderQuery:
    return FolderQuery(page=page, name_contains=name)


@router.post("/", responses=describe_response(Folder))
@sources_router.post("/", responses=describe_response(Folder))
async def create_folder(body: FolderCreate, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(folder_state(await folders.create(services, actor, new_folder(body))))


@router.get("/", responses=describe_response(list[Folder]))
async def list_folders(
    query: Annotated[FolderQuery, Depends(_folder_query)], services: ServicesDep, actor: ActorDep
) -> Response:
    return await list_response(await folders.list_page(services, actor, query), folder_state)


@sources_router.get("/", responses=describe_response(list[Folder]))
async def list_sources(services: ServicesDep, actor: ActorDep) -> Response:
    return await list_response(await folders.list_all(services, actor), folder_state)


@router.get("/count", responses=describe_response(int))
@sources_router.get("/count", responses=describe_response(int))
async def count_folders(services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(await folders.count(services, actor))


@router.get("/metadata", responses=describe_response(FoldersSummary))
@sources_router.get("/metadata", responses=describe_response(FoldersSummary))
async def summarise_folders(
    services: ServicesDep,
    actor: ActorDep,
    include_detailed_per_source_metadata: Annotated[
        bool, Query(description="Also each folder with its files.")
    ] = False,
) -> Response:
    """How many folders and files there are, and how large they are."""
    is_detailed = include_detailed_per_source_metadata
    contents = await folders.describe_contents(services, actor, with_files=is_detailed)
    return json_response(folders_summary(contents, is_detailed=is_detailed))


@router.get("/name/{folder_name}", responses=describe_response(str))
@sources_router.get("/name/{folder_name}", responses=describe_response(str))
async def find_folder(
    folder_name: Annotated[str, Path(description="The whole name.")],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """The id of the folder with this name."""
    return json_response((await folders.find_by_name(services, actor, folder_name)).id)


@router.get("/{folder_id}", responses=describe_response(Folder))
@sources_router.get("/{folder_id}", responses=describe_response(Folder))
async def retrieve_folder(folder_id: FolderId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(folder_state(await folders.retrieve(services, actor, folder_id)))


@router.patch("/{folder_id}", responses=describe_response(Folder))
@sources_router.patch("/{folder_id}", responses=describe_response(Folder))
async def modify_folder(
    folder_id: FolderId, body: FolderUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. Files that are there already keep their vectors."""
    changed = await folders.update(services, actor, folder_id, folder_changes(body))
    return json_response(folder_state(changed))


@router.delete("/{folder_id}", responses=describe_response(None))
@sources_router.delete("/{folder_id}", responses=describe_response(None))
async def delete_folder(folder_id: FolderId, services: ServicesDep, actor: ActorDep) -> Response:
    await folders.delete(services, actor, folder_id)
    return json_response(None)


@router.get("/{folder_id}/agents", responses=describe_response(list[str]))
@sources_router.get("/{folder_id}/agents", responses=describe_response(list[str]))
async def list_folder_agents(
    folder_id: FolderId,
    page: Annotated[Page, Depends(paging(Kind.AGENT, limit=50))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """The ids of the agents that have the folder."""
    return json_response(await folders.list_agent_ids(services, actor, folder_id, page))


@router.get("/{folder_id}/passages", responses=describe_response(list[Passage]))
@sources_router.get("/{folder_id}/passages", responses=describe_response(list[Passage]))
async def list_folder_passages(
    folder_id: FolderId,
    page: Annotated[Page, Depends(paging(Kind.PASSAGE, limit=100))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """The parts of the texts of its files that are searched. ``before`` is older and ``after`` newer in both orders."""
    folder, found, files = await folders.list_passages(services, actor, folder_id, page)
    return await list_response(found, lambda passage: file_passage_state(passage, folder, files))
