"""The tools and blocks of an agent (wire-v1 §2.4)."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Page
from holdfast.errors import Unprocessable
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.blocks import block_changes
from holdfast.http.letta_v1.parameters.ids import AgentId, BlockId, ToolId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.agents import (
    AgentState,
    HoldTool,
    Memory,
    RunAttachedTool,
    ToolExecutionResult,
)
from holdfast.http.letta_v1.schemas.blocks import BlockResponse, BlockUpdate
from holdfast.http.letta_v1.schemas.tools import Tool
from holdfast.http.letta_v1.to_wire.agents import agent_state, tool_execution_result
from holdfast.http.letta_v1.to_wire.blocks import block_state
from holdfast.http.letta_v1.to_wire.tools import tool_state
from holdfast.usecases import agent_relations, agents
from holdfast.usecases.agent_views import Relation

router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["agents"], route_class=JsonRoute)

BlockLabel = Annotated[str, Path(description="The label; it may contain slashes.")]


@router.get("/core-memory", responses=describe_response(Memory), deprecated=True)
async def retrieve_memory(agent_id: AgentId, services: ServicesDep, actor: ActorDep) -> Response:
    view = await agents.retrieve(services, actor, agent_id, {Relation.BLOCKS})
    return json_response(agent_state(view).memory)


@router.get("/core-memory/blocks", responses=describe_response(list[BlockResponse]))
async def list_agent_blocks(
    agent_id: AgentId,
    page: Annotated[Page, Depends(paging(Kind.BLOCK, limit=100))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await agent_relations.list_blocks(services, actor, agent_id, page)
    return await list_response(found, block_state)


@router.patch("/core-memory/blocks/attach/{block_id}", responses=describe_response(AgentState))
async def attach_block(
    agent_id: AgentId, block_id: BlockId, services: ServicesDep, actor: ActorDep
) -> Response:
    view = await agent_relations.attach_block(services, actor, agent_id, block_id)
    return json_response(agent_state(view))


@router.patch("/core-memory/blocks/detach/{block_id}", responses=describe_response(AgentState))
async def detach_block(
    agent_id: AgentId, block_id: BlockId, services: ServicesDep, actor: ActorDep
) -> Response:
    view = await agent_relations.detach_block(services, actor, agent_id, block_id)
    return json_response(agent_state(view))


@router.get("/core-memory/blocks/{block_label:path}", responses=describe_response(BlockResponse))
async def retrieve_agent_block(
    agent_id: AgentId, block_label: BlockLabel, services: ServicesDep, actor: ActorDep
) -> Response:
    block = await agent_relations.retrieve_block(services, actor, agent_id, block_label)
    return json_response(block_state(block))


@router.patch("/core-memory/blocks/{block_label:path}", responses=describe_response(BlockResponse))
async def modify_agent_block(
    agent_id: AgentId,
    block_label: BlockLabel,
    body: BlockUpdate,
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    """Change the block. Every agent that has it gets the change in its system message."""
    changes = block_changes(body)
    block = await agent_relations.update_block(services, actor, agent_id, block_label, changes)
    return json_response(block_state(block))


@router.get("/tools", responses=describe_response(list[Tool]))
async def list_agent_tools(
    agent_id: AgentId,
    page: Annotated[Page, Depends(paging(Kind.TOOL, limit=10))],
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    found = await agent_relations.list_tools(services, actor, agent_id, page)
    return await list_response(found, tool_state)


@router.patch("/tools/attach/{tool_id}", responses=describe_response(None))
async def attach_tool(
    agent_id: AgentId, tool_id: ToolId, services: ServicesDep, actor: ActorDep
) -> Response:
    await agent_relations.attach_tool(services, actor, agent_id, tool_id)
    return json_response(None)


@router.patch("/tools/detach/{tool_id}", responses=describe_response(None))
async def detach_tool(
    agent_id: AgentId, tool_id: ToolId, services: ServicesDep, actor: ActorDep
) -> Response:
    await agent_relations.detach_tool(services, actor, agent_id, tool_id)
    return json_response(None)


@router.patch("/tools/approval/{tool_name}", responses=describe_response(None))
async def hold_tool(
    *,
    agent_id: AgentId,
    tool_name: str,
    services: ServicesDep,
    actor: ActorDep,
    body: HoldTool | None = None,
    requires_approval: Annotated[bool | None, Query(deprecated=True)] = None,
) -> Response:
    """Set whether calls of the tool need an approval."""
    held = body.requires_approval if body else requires_approval
    if held is None:
        raise Unprocessable(
            "requires_approval must be provided either in request body or as query parameter"
        )
    await agent_relations.set_tool_approval(services, actor, agent_id, tool_name, required=held)
    return json_response(None)


@router.post("/tools/{tool_name}/run", responses=describe_response(ToolExecutionResult))
async def run_tool(
    agent_id: AgentId,
    tool_name: str,
    services: ServicesDep,
    actor: ActorDep,
    body: RunAttachedTool | None = None,
) -> Response:
    """Run an attached tool with the agent's variables, without calling the model."""
    arguments = body.args if body else {}
    result = await agent_relations.run_tool(services, actor, agent_id, tool_name, arguments)
    return json_response(tool_execution_result(result))
