"""Tools (wire-v1 §2.5)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from msgspec import structs

from holdfast.core.ids import Kind
from holdfast.core.messages import Message, Role
from holdfast.core.paging import Page
from holdfast.core.tools import ToolKind, ToolQuery
from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.tools import new_tool, source_to_run, tool_changes
from holdfast.http.letta_v1.parameters.ids import ToolId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.messages import ToolReturnMessage
from holdfast.http.letta_v1.schemas.tools import (
    Tool,
    ToolCreate,
    ToolRun,
    ToolSearch,
    ToolSearchResult,
    ToolUpdate,
)
from holdfast.http.letta_v1.to_wire.messages import api_messages
from holdfast.http.letta_v1.to_wire.tools import tool_search_result, tool_state
from holdfast.usecases import tools

router = APIRouter(prefix="/v1/tools", tags=["tools"], route_class=JsonRoute)

_BUILTIN_KINDS = tuple(kind for kind in ToolKind if kind not in (ToolKind.CUSTOM, ToolKind.MCP))


async def _tool_query(
    *,
    page: Annotated[Page, Depends(paging(Kind.TOOL, limit=50))],
    name: Annotated[str | None, Query(description="The whole name.")] = None,
    names: Annotated[Names, Query(description="Any of these names.")] = [],  # noqa: B006 - FastAPI copies it
    tool_ids: Annotated[Names, Query(description="Any of these ids.")] = [],  # noqa: B006 - FastAPI copies it
    search: Annotated[str | None, Query(description="A part of the name.")] = None,
    tool_types: Annotated[Names, Query(description="Any of these types.")] = [],  # noqa: B006 - FastAPI copies it
    exclude_tool_types: Annotated[Names, Query(description="None of these types.")] = [],  # noqa: B006 - FastAPI copies it
    return_only_letta_tools: Annotated[bool, Query(description="Built-in tools only.")] = False,
) -> ToolQuery:
    return ToolQuery(
        page=page,
        name=name,
        names=tuple(names),
        tool_ids=tuple(tool_ids),
        search=search,
        kinds=tuple(tool_types),
        excluded_kinds=tuple(exclude_tool_types),
        only_builtin=return_only_letta_tools,
    )


FiltersDep = Annotated[ToolQuery, Depends(_tool_query)]


@router.post("/", responses=describe_response(Tool))
async def create_tool(body: ToolCreate, services: ServicesDep, actor: ActorDep) -> Response:
    """Create a tool. If there is one of that name, it is changed and keeps its id."""
    return json_response(tool_state(await tools.upsert(services, actor, new_tool(body))))


@router.put("/", responses=describe_response(Tool))
async def upsert_tool(body: ToolCreate, services: ServicesDep, actor: ActorDep) -> Response:
    """Create a tool, or change the one of that name."""
    return json_response(tool_state(await tools.upsert(services, actor, new_tool(body))))


@router.get("/", responses=describe_response(list[Tool]))
async def list_tools(query: FiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    found = await tools.list_page(services, actor, query)
    return await list_response(found, tool_state)


@router.get("/count", responses=describe_response(int))
async def count_tools(
    query: FiltersDep,
    services: ServicesDep,
    actor: ActorDep,
    exclude_letta_tools: Annotated[bool, Query(description="Without built-in tools.")] = False,
) -> Response:
    if exclude_letta_tools:
        query = structs.replace(query, excluded_kinds=(*query.excluded_kinds, *_BUILTIN_KINDS))
    return json_response(await tools.count(services, actor, query))


@router.post("/add-base-tools", responses=describe_response(list[Tool]))
async def add_base_tools(services: ServicesDep, actor: ActorDep) -> Response:
    """Add the built-in tools that are missing, and update the others."""
    added = await tools.add_builtin(services, actor)
    return await list_response(added, tool_state)


@router.post("/run", responses=describe_response(ToolReturnMessage))
async def run_tool_from_source(body: ToolRun, services: ServicesDep, _actor: ActorDep) -> Response:
    """Run a tool from its source without storing it."""
    returned = await tools.run_source(
        services,
        source_to_run(body),
        body.args,
        function=body.name,
        environment=body.env_vars or {},
    )
    # This row is not stored and belongs to no thread: it only serves to build the answer.
    row = Message(
        id=services.ids.new_id(Kind.MESSAGE),
        agent_id="",
        thread_id="",
        role=Role.TOOL,
        created_at=services.clock.now(),
        tool_returns=(returned,),
    )
    return json_response(api_messages(row)[0])


@router.post("/search", responses=describe_response(list[ToolSearchResult]))
async def search_tools(body: ToolSearch, services: ServicesDep, actor: ActorDep) -> Response:
    """Find tools by the words of their names, descriptions and tags."""
    if body.search_mode == "vector":
        raise InvalidArgument(
            "Tools are found by their words: use search_mode 'fts' or 'hybrid' rather than 'vector'."
        )
    query = ToolQuery(page=Page(limit=body.limit), kinds=tuple(body.tool_types or ()))
    found = await tools.search(services, actor, query, body.query or "", tags=body.tags or ())
    return await list_response(found, tool_search_result)


@router.get("/{tool_id}", responses=describe_response(Tool))
async def retrieve_tool(tool_id: ToolId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(tool_state(await tools.retrieve(services, actor, tool_id)))


@router.patch("/{tool_id}", responses=describe_response(Tool))
async def modify_tool(
    tool_id: ToolId, body: ToolUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Change the fields that are given. With a new source, the schema is derived again unless one is given."""
    return json_response(
        tool_state(await tools.update(services, actor, tool_id, tool_changes(body)))
    )


@router.delete("/{tool_id}", responses=describe_response(None))
async def delete_tool(tool_id: ToolId, services: ServicesDep, actor: ActorDep) -> Response:
    """Delete the tool. It is detached from its agents."""
    await tools.delete(services, actor, tool_id)
    return json_response(None)
