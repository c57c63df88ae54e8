"""Agents (wire-v1 §2.2). Their tools and blocks are in ``agent_relations``."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from holdfast.core.agents import AgentQuery
from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.core.runs import StopReason
from holdfast.core.threads import DEFAULT_CONVERSATION
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.agents import agent_changes, new_agent
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.images import fetch_linked_images
from holdfast.http.letta_v1.parameters.conversations import agent_thread_id
from holdfast.http.letta_v1.parameters.identities import AnyIdentityFilter, IdentifierKeys
from holdfast.http.letta_v1.parameters.ids import AgentId, BlockId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.parameters.relations import RelationsDep
from holdfast.http.letta_v1.schemas.agents import (
    AgentCreate,
    AgentDeleted,
    AgentState,
    AgentUpdate,
    ResetMessages,
)
from holdfast.http.letta_v1.schemas.context import ContextWindowOverview
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.names import MAX_SCOPE_ID_CHARS
from holdfast.http.letta_v1.schemas.runs import AgentCost
from holdfast.http.letta_v1.to_wire.agents import agent_state
from holdfast.http.letta_v1.to_wire.context import context_overview
from holdfast.http.letta_v1.to_wire.runs import agent_cost
from holdfast.usecases import agent_context, agents, steps

router = APIRouter(prefix="/v1", tags=["agents"], route_class=JsonRoute)

_SORT_COLUMNS = ("created_at", "updated_at", "last_run_completion")


async def _agent_query(
    *,
    page: Annotated[Page, Depends(paging(Kind.AGENT, limit=50, order_by=_SORT_COLUMNS))],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    query_text: Annotated[str | None, Query(description="A part of the name.")] = None,
    tags: Annotated[Names | None, Query(description="Tags.")] = None,
    match_all_tags: Annotated[bool, Query(description="All tags, not any.")] = False,
    last_stop_reason: StopReason | None = None,
    created_by_id: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    identity_id: AnyIdentityFilter = None,
    identifier_keys: IdentifierKeys = None,
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


FiltersDep = Annotated[AgentQuery, Depends(_agent_query)]
UpdateTimestamp = Annotated[
    bool, Query(description="Say in the text that it was compiled now, not when it was before.")
]
DryRun = Annotated[bool, Query(description="Show the text, store nothing.")]


@router.post("/agents/", responses=describe_response(AgentState))
async def create_agent(
    body: AgentCreate,
    services: ServicesDep,
    actor: ActorDep,
    project: Annotated[
        str | None, Header(alias="X-Project-Id", max_length=MAX_SCOPE_ID_CHARS)
    ] = None,
) -> Response:
    await fetch_linked_images(services, body)
    view = await agents.create(services, actor, new_agent(body, project))
    return json_response(agent_state(view))


@router.get("/agents/", responses=describe_response(list[AgentState]))
async def list_agents(
    query: FiltersDep, included: RelationsDep, services: ServicesDep, actor: ActorDep
) -> Response:
    found = await agents.list_page(services, actor, query, included)
    return await list_response(found, agent_state)


@router.get("/agents/count", responses=describe_response(int))
async def count_agents(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(await agents.count(services, actor, query))


@router.get("/agents/{agent_id}", responses=describe_response(AgentState))
async def retrieve_agent(
    agent_id: AgentId, included: RelationsDep, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(agent_state(await agents.retrieve(services, actor, agent_id, included)))


@router.patch("/agents/{agent_id}", responses=describe_response(AgentState))
async def modify_agent(
    agent_id: AgentId, body: AgentUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. Lists replace the whole relation; null leaves a field unchanged."""
    view = await agents.update(services, actor, agent_id, agent_changes(body))
    return json_response(agent_state(view))


@router.delete("/agents/{agent_id}", responses=describe_response(AgentDeleted))
async def delete_agent(agent_id: AgentId, services: ServicesDep, actor: ActorDep) -> Response:
    """Delete the agent with its messages and runs. Its tools and blocks stay."""
    await agents.delete(services, actor, agent_id)
    return json_response(AgentDeleted(f"Agent id={agent_id} successfully deleted"))


@router.post("/agents/{agent_id}/recompile", responses=describe_response(str))
@router.post(
    "/agents/{agent_id}/system-prompt/recompile", responses=describe_response(str), deprecated=True
)
async def recompile_agent(
    agent_id: AgentId,
    services: ServicesDep,
    actor: ActorDep,
    update_timestamp: UpdateTimestamp = False,
    dry_run: DryRun = False,
) -> Response:
    """Compile the system message again from the prompt, the blocks and the tool rules."""
    text = await agent_context.recompile(
        services, actor, agent_id, keep_stamp=not update_timestamp, dry_run=dry_run
    )
    return json_response(text)


@router.get("/agents/{agent_id}/context", responses=describe_response(ContextWindowOverview))
async def retrieve_context(
    agent_id: AgentId, services: ServicesDep, actor: ActorDep, conversation_id: str | None = None
) -> Response:
    """How full the context window is. Token counts are estimates."""
    name = DEFAULT_CONVERSATION if conversation_id is None else conversation_id
    thread_id = agent_thread_id(name, agent_id)
    return json_response(
        context_overview(await agent_context.load_window(services, actor, agent_id, thread_id))
    )


@router.get("/agents/{agent_id}/cost", responses=describe_response(AgentCost))
async def retrieve_cost(
    agent_id: AgentId,
    services: ServicesDep,
    actor: ActorDep,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
) -> Response:
    """Not in V1: what the agent's steps have cost, in total or between two dates."""
    costs = await steps.sum_costs(services, actor, agent_id, as_utc(start_date), as_utc(end_date))
    return json_response(agent_cost(costs))


@router.patch("/agents/{agent_id}/reset-messages", responses=describe_response(None))
async def reset_messages(
    agent_id: AgentId, body: ResetMessages, services: ServicesDep, actor: ActorDep
) -> Response:
    """Remove all messages from the context, except the recompiled system message. The history keeps them."""
    del body
    await agent_context.reset(services, actor, agent_id)
    return json_response(None)


@router.get("/blocks/{block_id}/agents", responses=describe_response(list[AgentState]))
async def list_agents_of_block(
    block_id: BlockId,
    page: Annotated[Page, Depends(paging(Kind.AGENT, limit=50))],
    included: RelationsDep,
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await agents.list_with_block(services, actor, block_id, page, included)
    return await list_response(found, agent_state)
