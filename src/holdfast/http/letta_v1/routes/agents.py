"""Agents (wire-v1 §2.2). Their tools and blocks are in ``agent_relations``."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from holdfast.core.agents import AgentQuery
from holdfast.core.messages import default_thread_id
from holdfast.core.paging import Page
from holdfast.core.runs import StopReason
from holdfast.http.dependencies import ActorDep, HouseDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import documented, json_response
from holdfast.http.letta_v1.agents_wire import agent_changes, agent_state, new_agent, relations
from holdfast.http.letta_v1.context_wire import overview
from holdfast.http.letta_v1.from_wire import aware
from holdfast.http.letta_v1.ids import AgentId, BlockId
from holdfast.http.letta_v1.paging import paging
from holdfast.http.letta_v1.pictures import Created
from holdfast.http.letta_v1.routes import agent_relations
from holdfast.http.letta_v1.schemas.agents import (
    AgentDeleted,
    AgentState,
    AgentUpdate,
    Include,
    ResetMessages,
)
from holdfast.http.letta_v1.schemas.context import ContextWindowOverview
from holdfast.http.letta_v1.schemas.names import MAX_MARK_CHARS
from holdfast.http.letta_v1.schemas.runs import AgentCost
from holdfast.http.letta_v1.to_wire.runs import agent_cost
from holdfast.usecases import agent_context, agents, steps
from holdfast.usecases.agent_views import Relation

router = APIRouter(prefix="/v1", tags=["agents"], route_class=JsonRoute)

_DEFAULT_CONVERSATION = "default"
_SORTED_BY = ("created_at", "updated_at", "last_run_completion")


async def _included(
    include: Annotated[
        list[Include] | None, Query(description="What comes along; nothing if not given.")
    ] = None,
    include_relationships: Annotated[
        list[str] | None, Query(deprecated=True, description="Old form of include.")
    ] = None,
) -> frozenset[Relation]:
    return relations(include, include_relationships)


async def _filters(
    *,
    page: Annotated[Page, Depends(paging(limit=50, order_by=_SORTED_BY))],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    query_text: Annotated[str | None, Query(description="A part of the name.")] = None,
    tags: Annotated[list[str] | None, Query(description="Tags.")] = None,
    match_all_tags: Annotated[bool, Query(description="All tags, not any.")] = False,
    last_stop_reason: StopReason | None = None,
    created_by_id: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    identity_id: str | None = None,
    identifier_keys: Annotated[list[str] | None, Query()] = None,
    show_hidden_agents: Annotated[bool, Query(description="Hidden agents too.")] = False,
) -> AgentQuery:
    return AgentQuery(
        page=page,
        name=name,
        query_text=query_text,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        last_stop_reason=last_stop_reason,
        created_by_id=created_by_id,
        project_id=project_id,
        template_id=template_id,
        base_template_id=base_template_id,
        identity_id=identity_id,
        identifier_keys=tuple(identifier_keys or ()),
        show_hidden=show_hidden_agents,
    )


Included = Annotated[frozenset[Relation], Depends(_included)]
Filters = Annotated[AgentQuery, Depends(_filters)]
UpdateTimestamp = Annotated[
    bool, Query(description="Say in the text that it was compiled now, not when it was before.")
]
DryRun = Annotated[bool, Query(description="Show the text, store nothing.")]


@router.post("/agents/", responses=documented(AgentState))
async def create_agent(
    body: Created,
    house: HouseDep,
    actor: ActorDep,
    project: Annotated[str | None, Header(alias="X-Project-Id", max_length=MAX_MARK_CHARS)] = None,
) -> Response:
    view = await agents.create(house, actor, new_agent(body, project))
    return json_response(agent_state(view))


@router.get("/agents/", responses=documented(list[AgentState]))
async def list_agents(
    query: Filters, included: Included, house: HouseDep, actor: ActorDep
) -> Response:
    found = await agents.list_page(house, actor, query, included)
    return json_response([agent_state(view) for view in found])


@router.get("/agents/count", responses=documented(int))
async def count_agents(query: Filters, house: HouseDep, actor: ActorDep) -> Response:
    return json_response(await agents.count(house, actor, query))


@router.get("/agents/{agent_id}", responses=documented(AgentState))
async def retrieve_agent(
    agent_id: AgentId, included: Included, house: HouseDep, actor: ActorDep
) -> Response:
    return json_response(agent_state(await agents.retrieve(house, actor, agent_id, included)))


@router.patch("/agents/{agent_id}", responses=documented(AgentState))
async def modify_agent(
    agent_id: AgentId, body: AgentUpdate, house: HouseDep, actor: ActorDep
) -> Response:
    """Change what is given. Lists replace the whole relation; null leaves things as they are."""
    view = await agents.update(house, actor, agent_id, agent_changes(body))
    return json_response(agent_state(view))


@router.delete("/agents/{agent_id}", responses=documented(AgentDeleted))
async def delete_agent(agent_id: AgentId, house: HouseDep, actor: ActorDep) -> Response:
    """The agent with its messages and runs; its tools and blocks stay."""
    await agents.delete(house, actor, agent_id)
    return json_response(AgentDeleted(f"Agent id={agent_id} successfully deleted"))


@router.post("/agents/{agent_id}/recompile", responses=documented(str))
@router.post(
    "/agents/{agent_id}/system-prompt/recompile", responses=documented(str), deprecated=True
)
async def recompile_agent(
    agent_id: AgentId,
    house: HouseDep,
    actor: ActorDep,
    update_timestamp: UpdateTimestamp = False,
    dry_run: DryRun = False,
) -> Response:
    """Compile the system message again from prompt, blocks and rules."""
    text = await agent_context.recompile(
        house, actor, agent_id, keep_stamp=not update_timestamp, dry_run=dry_run
    )
    return json_response(text)


@router.get("/agents/{agent_id}/context", responses=documented(ContextWindowOverview))
async def retrieve_context(
    agent_id: AgentId, house: HouseDep, actor: ActorDep, conversation_id: str | None = None
) -> Response:
    """How full the window is; token counts are estimates."""
    is_default = conversation_id in (None, _DEFAULT_CONVERSATION)
    thread_id = default_thread_id(agent_id) if is_default else conversation_id
    return json_response(overview(await agent_context.window(house, actor, agent_id, thread_id)))


@router.get("/agents/{agent_id}/cost", responses=documented(AgentCost))
async def retrieve_cost(
    agent_id: AgentId,
    house: HouseDep,
    actor: ActorDep,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
) -> Response:
    """Not in V1: what the agent's steps have cost, in all or between two moments."""
    costs = await steps.costs(house, actor, agent_id, aware(start_date), aware(end_date))
    return json_response(agent_cost(costs))


@router.patch("/agents/{agent_id}/reset-messages", responses=documented(None))
async def reset_messages(
    agent_id: AgentId, body: ResetMessages, house: HouseDep, actor: ActorDep
) -> Response:
    """Empty the context but for the recompiled system message. The history keeps every message."""
    del body
    await agent_context.reset(house, actor, agent_id)
    return json_response(None)


@router.get("/blocks/{block_id}/agents", responses=documented(list[AgentState]))
async def list_agents_of_block(
    block_id: BlockId,
    page: Annotated[Page, Depends(paging(limit=50))],
    included: Included,
    house: HouseDep,
    actor: ActorDep,
) -> Response:
    found = await agents.holding_block(house, actor, block_id, page, included)
    return json_response([agent_state(view) for view in found])


router.include_router(agent_relations.router)
