"""What an agent has stored in its archives (memory-v1 §1)."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.http.body_warnings import add_warnings
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.passages import new_passage
from holdfast.http.letta_v1.parameters.ids import AgentId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.dates import OptionalDate
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.passages import (
    MAX_FOUND,
    AgentPassageCreate,
    AgentPassageResults,
    Passage,
    PassageDeleted,
    TagMatchMode,
)
from holdfast.http.letta_v1.to_wire.passages import agent_result, passage_state
from holdfast.usecases import archives, passages, stored_passages
from holdfast.usecases.archive_search import ArchiveSearch, search_agent

router = APIRouter(
    prefix="/v1/agents/{agent_id}/archival-memory", tags=["agents"], route_class=JsonRoute
)


@router.post("", responses=describe_response(list[Passage]))
async def create_agent_passage(
    agent_id: AgentId, body: AgentPassageCreate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Store a text in the agent's default archive, which the first one creates. The answer is a list of one."""
    stored = await passages.insert_for_agent(
        services, actor, agent_id, new_passage(body), deduplicate=body.deduplicate
    )
    shown = await archives.find_by_passage(services, actor, [stored.passage])
    return json_response([passage_state(stored.passage, shown, stored.vector)])


@router.get("", responses=describe_response(list[Passage]))
async def list_agent_passages(
    agent_id: AgentId,
    page: Annotated[Page, Depends(paging(Kind.PASSAGE, limit=100, order=Order.ASC))],
    services: ServicesDep,
    actor: ActorDep,
    search: Annotated[str | None, Query(description="A part of the text, ignoring case.")] = None,
) -> Response:
    """Passages of all archives of the agent. ``after`` means newer and ``before`` older, in both orders."""
    found = await stored_passages.list_of_agent(services, actor, agent_id, search, page)
    shown = await archives.find_by_passage(services, actor, found)
    return await list_response(found, partial(passage_state, archives=shown))


async def _archive_search(
    *,
    query: Annotated[str, Query(description="Words; with none of them nothing is found.")],
    tags: Annotated[Names | None, Query(description="Tags.")] = None,
    tag_match_mode: Annotated[TagMatchMode, Query(description="Any of the tags, or all.")] = "any",
    top_k: Annotated[int, Query(ge=1, le=MAX_FOUND, description="How many at most.")] = 10,
    start_datetime: Annotated[
        OptionalDate,
        Query(description="Created then or later; in the agent's timezone if it has no offset."),
    ] = None,
    end_datetime: Annotated[
        OptionalDate,
        Query(description="Created then or earlier. A day without a time means all of this day."),
    ] = None,
) -> ArchiveSearch:
    return ArchiveSearch(
        query=query,
        limit=top_k,
        tags=tuple(tags or ()),
        match_all_tags=tag_match_mode == "all",
        since=start_datetime,
        until=end_datetime,
    )


@router.get("/search", responses=describe_response(AgentPassageResults))
async def search_agent_passages(
    agent_id: AgentId,
    wanted: Annotated[ArchiveSearch, Depends(_archive_search)],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """The best matches first. ``warnings`` tells what could not be used for the search."""
    found = await search_agent(services, actor, agent_id, wanted)
    results = [agent_result(item, found.agent.timezone) for item in found.result.found]
    response = json_response(AgentPassageResults(results=results, count=len(results)))
    add_warnings(response, found.result.unused)
    return response


@router.delete("/{memory_id}", responses=describe_response(PassageDeleted))
async def delete_agent_passage(
    agent_id: AgentId, memory_id: str, services: ServicesDep, actor: ActorDep
) -> Response:
    """Delete a passage of one of the agent's archives."""
    await stored_passages.delete_of_agent(services, actor, agent_id, memory_id)
    return json_response(PassageDeleted(f"Memory id={memory_id} successfully deleted"))
