"""Memory blocks (wire-v1 §2.6). The list of the agents of a block is in ``routes.agents``."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.blocks import LABEL_PATTERN, MAX_LABEL_CHARS, BlockQuery
from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.blocks import block_changes, new_block
from holdfast.http.letta_v1.parameters.identities import IdentifierKeys, IdentityFilter
from holdfast.http.letta_v1.parameters.ids import BlockId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.blocks import BlockCreate, BlockResponse, BlockUpdate
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.to_wire.blocks import block_state
from holdfast.usecases import blocks

router = APIRouter(prefix="/v1/blocks", tags=["blocks"], route_class=JsonRoute)

AgentCountFilter = Annotated[
    int | None, Query(ge=0, le=2**31 - 1, description="By the number of agents that hold it.")
]


async def _block_query(
    *,
    page: Annotated[Page, Depends(paging(Kind.BLOCK, limit=50, order=Order.ASC))],
    label: Annotated[
        str | None,
        Query(pattern=LABEL_PATTERN, max_length=MAX_LABEL_CHARS, description="The whole label."),
    ] = None,
    name: Annotated[str | None, Query(description="The whole template name.")] = None,
    label_search: Annotated[str | None, Query(description="A part of the label.")] = None,
    description_search: Annotated[
        str | None, Query(description="A part of the description.")
    ] = None,
    value_search: Annotated[str | None, Query(description="A part of the value.")] = None,
    tags: Annotated[Names, Query(description="Tags.")] = [],  # noqa: B006 - FastAPI copies it
    match_all_tags: Annotated[bool, Query(description="All tags, not any.")] = False,
    templates_only: Annotated[bool, Query(description="Templates only.")] = False,
    project_id: Annotated[str | None, Query(description="The project.")] = None,
    identity_id: IdentityFilter = None,
    identifier_keys: IdentifierKeys = None,
    connected_to_agents_count_gt: AgentCountFilter = None,
    connected_to_agents_count_lt: AgentCountFilter = None,
    connected_to_agents_count_eq: AgentCountFilter = None,
) -> BlockQuery:
    return BlockQuery(
        page=page,
        label=label,
        name=name,
        label_search=label_search,
        description_search=description_search,
        value_search=value_search,
        tags=tuple(tags),
        match_all_tags=match_all_tags,
        templates_only=templates_only,
        project_id=project_id,
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        connected_gt=connected_to_agents_count_gt,
        connected_lt=connected_to_agents_count_lt,
        connected_eq=connected_to_agents_count_eq,
    )


FiltersDep = Annotated[BlockQuery, Depends(_block_query)]


@router.post("/", responses=describe_response(BlockResponse))
async def create_block(body: BlockCreate, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(block_state(await blocks.create(services, actor, new_block(body))))


@router.get("/", responses=describe_response(list[BlockResponse]))
async def list_blocks(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    found = await blocks.list_page(services, actor, query)
    return await list_response(found, block_state)


@router.get("/count", responses=describe_response(int))
async def count_blocks(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(await blocks.count(services, actor, query))


@router.get("/{block_id}", responses=describe_response(BlockResponse))
async def retrieve_block(block_id: BlockId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(block_state(await blocks.retrieve(services, actor, block_id)))


@router.patch("/{block_id}", responses=describe_response(BlockResponse))
async def modify_block(
    block_id: BlockId, body: BlockUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. Agents that have the block get the change in their system message."""
    changed = await blocks.update(services, actor, block_id, block_changes(body))
    return json_response(block_state(changed))


@router.delete("/{block_id}", responses=describe_response(None))
async def delete_block(block_id: BlockId, services: ServicesDep, actor: ActorDep) -> Response:
    await blocks.delete(services, actor, block_id)
    return json_response(None)
