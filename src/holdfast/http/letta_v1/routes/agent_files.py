"""The folders and files of an agent (memory-v1 §5.6, §5.7)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.parameters.ids import AgentId, FileId, FolderId
from holdfast.http.letta_v1.parameters.paging import check_cursor, paging
from holdfast.http.letta_v1.schemas.agent_files import AgentFilesPage, FileClosed
from holdfast.http.letta_v1.schemas.agents import AgentState
from holdfast.http.letta_v1.schemas.folders import Folder
from holdfast.http.letta_v1.to_wire.agent_files import files_page
from holdfast.http.letta_v1.to_wire.agents import agent_state
from holdfast.http.letta_v1.to_wire.folders import folder_state
from holdfast.usecases import agent_files

router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["agents"], route_class=JsonRoute)

# The client pages with the ids of items; its help speaks of files.
_CURSORS = (Kind.FILE_AGENT, Kind.FILE)

FoldersPage = Annotated[Page, Depends(paging(Kind.SOURCE, limit=100))]


@router.get("/folders", responses=describe_response(list[Folder]))
@router.get("/sources", responses=describe_response(list[Folder]), deprecated=True)
async def list_agent_folders(
    agent_id: AgentId, page: FoldersPage, services: ServicesDep, actor: ActorDep
) -> Response:
    found = await agent_files.list_folders(services, actor, agent_id, page)
    return await list_response(found, folder_state)


@router.patch("/folders/attach/{folder_id}", responses=describe_response(None))
async def attach_folder(
    agent_id: AgentId, folder_id: FolderId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Attach the folder. The agent gets its files and the tools for files; the first files are opened."""
    await agent_files.attach_folder(services, actor, agent_id, folder_id)
    return json_response(None)


@router.patch("/folders/detach/{folder_id}", responses=describe_response(None))
async def detach_folder(
    agent_id: AgentId, folder_id: FolderId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Detach the folder. With the last one the agent loses the tools for files."""
    await agent_files.detach_folder(services, actor, agent_id, folder_id)
    return json_response(None)


@router.patch(
    "/sources/attach/{folder_id}", responses=describe_response(AgentState), deprecated=True
)
async def attach_source(
    agent_id: AgentId, folder_id: FolderId, services: ServicesDep, actor: ActorDep
) -> Response:
    view = await agent_files.attach_folder(services, actor, agent_id, folder_id)
    return json_response(agent_state(view))


@router.patch(
    "/sources/detach/{folder_id}", responses=describe_response(AgentState), deprecated=True
)
async def detach_source(
    agent_id: AgentId, folder_id: FolderId, services: ServicesDep, actor: ActorDep
) -> Response:
    view = await agent_files.detach_folder(services, actor, agent_id, folder_id)
    return json_response(agent_state(view))


@router.get("/files", responses=describe_response(AgentFilesPage))
async def list_agent_files(
    *,
    agent_id: AgentId,
    page: Annotated[Page, Depends(paging(*_CURSORS, limit=100))],
    services: ServicesDep,
    actor: ActorDep,
    cursor: Annotated[
        str | None, Query(deprecated=True, max_length=100, description="Old name of after.")
    ] = None,
    is_open: Annotated[
        bool | None, Query(description="Only files that are open, or closed.")
    ] = None,
) -> Response:
    """List the files of the agent's folders. A cursor is the id of an item or of its file."""
    page = replace(page, after=page.after or check_cursor(_CURSORS, "cursor", cursor))
    found = await agent_files.list_files(services, actor, agent_id, page, is_open=is_open)
    return json_response(files_page(found))


@router.patch("/files/close-all", responses=describe_response(list[str]))
async def close_all_files(agent_id: AgentId, services: ServicesDep, actor: ActorDep) -> Response:
    """Close all open files. Returns their names."""
    return json_response(await agent_files.close_all(services, actor, agent_id))


@router.patch("/files/{file_id}/open", responses=describe_response(list[str]))
async def open_file(
    agent_id: AgentId, file_id: FileId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Open the whole file. Returns the names of the files that were closed to make room."""
    return json_response(await agent_files.open_file(services, actor, agent_id, file_id))


@router.patch("/files/{file_id}/close", responses=describe_response(FileClosed))
async def close_file(
    agent_id: AgentId, file_id: FileId, services: ServicesDep, actor: ActorDep
) -> Response:
    await agent_files.close_file(services, actor, agent_id, file_id)
    return json_response(FileClosed(f"File id={file_id} successfully closed"))
