"""Identities, and those of an agent or a block (tools-v1 §2.2)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.identities import IdentityQuery, IdentityType
from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.identities import (
    identity_changes,
    identity_properties,
    new_identity,
)
from holdfast.http.letta_v1.parameters.ids import AgentId, BlockId, IdentityId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.parameters.relations import RelationsDep
from holdfast.http.letta_v1.schemas.agents import AgentState
from holdfast.http.letta_v1.schemas.blocks import BlockResponse
from holdfast.http.letta_v1.schemas.identities import (
    Identity,
    IdentityCreate,
    IdentityUpdate,
    Properties,
)
from holdfast.http.letta_v1.to_wire.agents import agent_state
from holdfast.http.letta_v1.to_wire.blocks import block_state
from holdfast.http.letta_v1.to_wire.identities import identity_state
from holdfast.usecases import identities

router = APIRouter(prefix="/v1/identities", tags=["identities"], route_class=JsonRoute)
agent_router = APIRouter(
    prefix="/v1/agents/{agent_id}/identities", tags=["agents"], route_class=JsonRoute
)
block_router = APIRouter(
    prefix="/v1/blocks/{block_id}/identities", tags=["blocks"], route_class=JsonRoute
)


async def _identity_query(
    page: Annotated[Page, Depends(paging(Kind.IDENTITY, limit=50))],
    name: Annotated[str | None, Query(description="A part of the name.")] = None,
    identifier_key: Annotated[str | None, Query(description="The whole key.")] = None,
    identity_type: IdentityType | None = None,
    project_id: Annotated[str | None, Query(description="The project.")] = None,
) -> IdentityQuery:
    return IdentityQuery(
        page=page,
        name_contains=name,
        identifier_key=identifier_key,
        identity_type=identity_type,
        project_id=project_id,
    )


FiltersDep = Annotated[IdentityQuery, Depends(_identity_query)]


@router.get("/", responses=describe_response(list[Identity]))
async def list_identities(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    found = await identities.list_page(services, actor, query)
    return await list_response(found, identity_state)


@router.get("/count", responses=describe_response(int))
async def count_identities(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(await identities.count(services, actor, query))


@router.post("/", responses=describe_response(Identity))
async def create_identity(body: IdentityCreate, services: ServicesDep, actor: ActorDep) -> Response:
    view = await identities.create(services, actor, new_identity(body))
    return json_response(identity_state(view))


@router.put("/", responses=describe_response(Identity))
async def upsert_identity(body: IdentityCreate, services: ServicesDep, actor: ActorDep) -> Response:
    """Create the identity, or change the one with this key in this project. What is given replaces what it has."""
    view = await identities.upsert(services, actor, new_identity(body))
    return json_response(identity_state(view))


@router.get("/{identity_id}", responses=describe_response(Identity))
async def retrieve_identity(
    identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(identity_state(await identities.retrieve(services, actor, identity_id)))


@router.patch("/{identity_id}", responses=describe_response(Identity))
async def modify_identity(
    identity_id: IdentityId, body: IdentityUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. Properties are merged by their keys; agents and blocks are added."""
    view = await identities.update(services, actor, identity_id, identity_changes(body))
    return json_response(identity_state(view))


@router.put("/{identity_id}/properties", responses=describe_response(Identity))
async def replace_properties(
    identity_id: IdentityId, body: Properties, services: ServicesDep, actor: ActorDep
) -> Response:
    properties = identity_properties(body)
    view = await identities.replace_properties(services, actor, identity_id, properties)
    return json_response(identity_state(view))


@router.delete("/{identity_id}", responses=describe_response(None))
async def delete_identity(
    identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Delete the identity. Its agents and blocks stay."""
    await identities.delete(services, actor, identity_id)
    return json_response(None)


@router.get("/{identity_id}/agents", responses=describe_response(list[AgentState]))
async def list_agents_of_identity(
    identity_id: IdentityId,
    page: Annotated[Page, Depends(paging(Kind.AGENT, limit=50))],
    included: RelationsDep,
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await identities.list_agents(services, actor, identity_id, page, included)
    return await list_response(found, agent_state)


@router.get("/{identity_id}/blocks", responses=describe_response(list[BlockResponse]))
async def list_blocks_of_identity(
    identity_id: IdentityId,
    page: Annotated[Page, Depends(paging(Kind.BLOCK, limit=50))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await identities.list_blocks(services, actor, identity_id, page)
    return await list_response(found, block_state)


@agent_router.patch("/attach/{identity_id}", responses=describe_response(None))
async def attach_identity_to_agent(
    agent_id: AgentId, identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    await identities.attach_to_agent(services, actor, agent_id, identity_id)
    return json_response(None)


@agent_router.patch("/detach/{identity_id}", responses=describe_response(None))
async def detach_identity_from_agent(
    agent_id: AgentId, identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    await identities.detach_from_agent(services, actor, agent_id, identity_id)
    return json_response(None)


@block_router.patch("/attach/{identity_id}", responses=describe_response(BlockResponse))
async def attach_identity_to_block(
    block_id: BlockId, identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    """The agents of the identity do not get the block."""
    block = await identities.attach_to_block(services, actor, block_id, identity_id)
    return json_response(block_state(block))


@block_router.patch("/detach/{identity_id}", responses=describe_response(BlockResponse))
async def detach_identity_from_block(
    block_id: BlockId, identity_id: IdentityId, services: ServicesDep, actor: ActorDep
) -> Response:
    block = await identities.detach_from_block(services, actor, block_id, identity_id)
    return json_response(block_state(block))
