"""The agent's state for tools with a parameter ``agent_state``, as in V1 (wire-v1 §7.4). It contains no secrets; those
are in the tool's environment."""

from typing import Any

from holdfast.core.blocks import Block, visible_blocks
from holdfast.core.tools import Tool
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import ToolContext

_PARAMETER = "agent_state"


async def load_agent_state(
    services: Services, source: str, context: ToolContext
) -> dict[str, Any] | None:
    """Load the agent's current state; None if the tool's source does not contain the word ``agent_state``."""
    if _PARAMETER not in source:
        return None
    return await services.store.read(lambda tx: _agent_state(tx, context))


def _agent_state(tx: Transaction, context: ToolContext) -> dict[str, Any]:
    agent = tx.agents.get(context.organization_id, context.agent_id)
    own = tx.blocks.thread_blocks([context.thread_id])[context.thread_id]
    held = tx.agents.blocks([agent.id]).get(agent.id, ())
    blocks = [_block(block) for block in visible_blocks(held, own)]
    return {
        "id": agent.id,
        "name": agent.name,
        "agent_type": agent.agent_type,
        "description": agent.description,
        "system": agent.system,
        "model": agent.model.handle,
        "timezone": agent.timezone,
        "metadata": agent.metadata,
        "memory": {"blocks": blocks},
        "blocks": blocks,
        "tags": list(tx.agents.tags([agent.id]).get(agent.id, ())),
        "tools": [_tool(tool) for tool in tx.agents.tools([agent.id]).get(agent.id, ())],
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "label": block.label,
        "value": block.value,
        "description": block.description,
        "limit": block.limit,
        "read_only": block.read_only,
        "metadata": block.metadata,
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "id": tool.id,
        "name": tool.name,
        "description": tool.description,
        "tags": list(tool.tags),
    }
