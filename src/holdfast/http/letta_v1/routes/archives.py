"""Archives, and those of an agent (memory-v1 §1). Their passages are in ``passages``."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from holdfast.core.archives import ArchiveQuery
from holdfast.core.ids import Kind, is_id
from holdfast.core.paging import Page
from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import (
    describe_empty,
    describe_response,
    empty_response,
    json_response,
    list_response,
)
from holdfast.http.letta_v1.from_wire.archives import archive_changes, new_archive
from holdfast.http.letta_v1.parameters.ids import AgentId, ArchiveId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.parameters.relations import RelationsDep
from holdfast.http.letta_v1.schemas.agents import AgentState
from holdfast.http.letta_v1.schemas.archives import (
    Archive,
    ArchiveCreate,
    ArchiveReembed,
    ArchiveUpdate,
    ReembedState,
)
from holdfast.http.letta_v1.to_wire.agents import agent_state
from holdfast.http.letta_v1.to_wire.archives import archive_state, reembed_state
from holdfast.usecases import archives, reembedding

router = APIRouter(prefix="/v1/archives", tags=["archives"], route_class=JsonRoute)
agent_router = APIRouter(
    prefix="/v1/agents/{agent_id}/archives", tags=["agents"], route_class=JsonRoute
)

# Not checked by the router: a malformed one is a 400.
AnyArchiveId = Annotated[str, Path(description="The id of the archive, 'archive-<uuid4>'.")]


async def _archive_query(
    page: Annotated[Page, Depends(paging(Kind.ARCHIVE, limit=50))],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    agent_id: Annotated[str | None, Query(description="Archives of this agent.")] = None,
) -> ArchiveQuery:
    if agent_id is not None and not is_id(Kind.AGENT, agent_id):
        raise InvalidArgument(
            f"Invalid agent ID format: {agent_id}. Expected format: 'agent-<uuid4>'"
        )
    return ArchiveQuery(page=page, name=name, agent_id=agent_id)


@router.post("/", responses=describe_response(Archive))
async def create_archive(body: ArchiveCreate, services: ServicesDep, actor: ActorDep) -> Response:
    archive = await archives.create(services, actor, new_archive(body))
    return json_response(archive_state(archive))


@router.get("/", responses=describe_response(list[Archive]))
async def list_archives(
    query: Annotated[ArchiveQuery, Depends(_archive_query)],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await archives.list_page(services, actor, query)
    return await list_response(found, archive_state)


@router.get("/{archive_id}", responses=describe_response(Archive))
async def retrieve_archive(
    archive_id: ArchiveId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(archive_state(await archives.retrieve(services, actor, archive_id)))


@router.patch("/{archive_id}", responses=describe_response(Archive))
async def modify_archive(
    archive_id: ArchiveId, body: ArchiveUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. The embedding model of an archive cannot be changed here."""
    changed = await archives.update(services, actor, archive_id, archive_changes(body))
    return json_response(archive_state(changed))


@router.delete("/{archive_id}", status_code=204, responses=describe_empty())
async def delete_archive(archive_id: ArchiveId, services: ServicesDep, actor: ActorDep) -> Response:
    """Delete the archive with its passages. Agents that have it stay."""
    await archives.delete(services, actor, archive_id)
    return empty_response()


@router.post("/{archive_id}/reembed", responses=describe_response(ReembedState))
async def reembed_archive(
    archive_id: ArchiveId, body: ArchiveReembed, services: ServicesDep, actor: ActorDep
) -> Response:
    """Not in V1: change the embedding model. Vectors are made in the background; repeat the request until ``complete``.
    The archive is searched with its old vectors until then."""
    state = await reembedding.advance(
        services,
        actor,
        archive_id,
        body.embedding,
        retry_failed=body.retry_failed,
        skip_failed=body.skip_failed,
    )
    return json_response(reembed_state(state))


@router.get("/{archive_id}/agents", responses=describe_response(list[AgentState]))
async def list_agents_of_archive(
    archive_id: ArchiveId,
    page: Annotated[Page, Depends(paging(Kind.AGENT, limit=50))],
    included: RelationsDep,
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await archives.list_agents(services, actor, archive_id, page, included)
    return await list_response(found, agent_state)


@agent_router.patch("/attach/{archive_id}", responses=describe_response(None))
async def attach_archive(
    agent_id: AgentId, archive_id: AnyArchiveId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Let the agent use the archive. It may have several; many agents may have the same."""
    await archives.attach(services, actor, agent_id, archive_id)
    return json_response(None)


@agent_router.patch("/detach/{archive_id}", responses=describe_response(None))
async def detach_archive(
    agent_id: AgentId, archive_id: AnyArchiveId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Take the archive from the agent. Its passages stay in it."""
    await archives.detach(services, actor, agent_id, archive_id)
    return json_response(None)
