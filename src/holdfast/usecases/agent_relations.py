"""The tools and blocks of an agent: list, attach, detach, require approval, run a tool directly."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import system_message
from holdfast.core import tool_rules
from holdfast.core.agents import Actor, Agent
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.messages import ToolCall, ToolReturn, default_thread_id
from holdfast.core.paging import Page
from holdfast.core.tools import Tool, ToolQuery
from holdfast.core.turn import PlannedCall
from holdfast.errors import NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import ToolContext
from holdfast.usecases import blocks, embedding_choice
from holdfast.usecases.agent_views import AgentView, load_view


async def list_tools(services: Services, actor: Actor, agent_id: str, page: Page) -> Sequence[Tool]:
    def work(tx: Transaction) -> Sequence[Tool]:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.tools.list(actor.organization_id, ToolQuery(page=page, agent_id=agent_id))

    return await services.store.read(work)


async def attach_tool(services: Services, actor: Actor, agent_id: str, tool_id: str) -> None:
    """Attach a tool. One that requires approval by default also adds its approval rule to the agent."""

    def work(tx: Transaction) -> None:
        agent = tx.agents.get_for_update(actor.organization_id, agent_id)
        tool = tx.tools.get(actor.organization_id, tool_id)
        tx.agents.attach_tools(agent.id, [tool.id])
        if tool.default_requires_approval:
            _save_rules(
                tx, services, actor, agent, tool_rules.with_approvals(agent.tool_rules, [tool.name])
            )

    await services.store.write(work)


async def detach_tool(services: Services, actor: Actor, agent_id: str, tool_id: str) -> None:
    """Detach a tool. It is no error if the tool was not attached."""

    def work(tx: Transaction) -> None:
        tx.agents.get(actor.organization_id, agent_id)
        tx.agents.detach_tools(agent_id, [tool_id])

    await services.store.write(work)


async def set_tool_approval(
    services: Services, actor: Actor, agent_id: str, tool_name: str, *, required: bool
) -> None:
    """Set whether calls of the tool wait for a person's approval."""

    def work(tx: Transaction) -> None:
        agent = tx.agents.get_for_update(actor.organization_id, agent_id)
        rules = (
            tool_rules.with_approvals(agent.tool_rules, [tool_name])
            if required
            else tool_rules.without_approval(agent.tool_rules, tool_name)
        )
        _save_rules(tx, services, actor, agent, rules)

    await services.store.write(work)


async def run_tool(
    services: Services, actor: Actor, agent_id: str, tool_name: str, arguments: Mapping[str, Any]
) -> ToolReturn:
    """Run an attached tool with the agent's environment, without asking the model."""

    def load(tx: Transaction) -> tuple[Tool, dict[str, str]]:
        tx.agents.get(actor.organization_id, agent_id)
        attached = tx.agents.tools([agent_id]).get(agent_id, ())
        tool = next((tool for tool in attached if tool.name == tool_name), None)
        if tool is None:
            raise NotFound(f"Tool '{tool_name}' not found or not attached to agent '{agent_id}'")
        secrets = tx.agents.secrets([agent_id]).get(agent_id, ())
        return tool, {secret.key: secret.value for secret in secrets}

    tool, environment = await services.store.read(load)
    call = ToolCall(
        id=f"call_{services.ids.new_otid()[:8]}",
        name=tool.name,
        arguments=msgspec.json.encode(arguments).decode(),
    )
    where = ToolContext(
        agent_id=agent_id,
        organization_id=actor.organization_id,
        thread_id=default_thread_id(agent_id),
        environment=environment,
        user_id=actor.user_id,
    )
    return await services.toolbox.run(tool, PlannedCall(call, dict(arguments)), where)


async def list_blocks(
    services: Services, actor: Actor, agent_id: str, page: Page
) -> Sequence[Block]:
    def work(tx: Transaction) -> Sequence[Block]:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.blocks.list(actor.organization_id, BlockQuery(page=page, agent_id=agent_id))

    return await services.store.read(work)


async def retrieve_block(services: Services, actor: Actor, agent_id: str, label: str) -> Block:
    return await services.store.read(lambda tx: _get_block(tx, actor, agent_id, label))


async def update_block(
    services: Services, actor: Actor, agent_id: str, label: str, changes: Mapping[str, object]
) -> Block:
    """Update the agent's block with this label; ``changes`` holds new values of ``Block`` fields."""
    now = services.clock.now()
    return await services.store.write(
        lambda tx: blocks.apply_update(
            tx, actor, _get_block(tx, actor, agent_id, label), changes, now
        )
    )


async def attach_block(services: Services, actor: Actor, agent_id: str, block_id: str) -> AgentView:
    def work(tx: Transaction) -> AgentView:
        agent = tx.agents.get(actor.organization_id, agent_id)
        tx.blocks.get(actor.organization_id, block_id)
        tx.agents.attach_blocks(agent_id, [block_id])
        system_message.show_new_blocks(tx, [agent_id], services.clock.now())
        return embedding_choice.with_warnings(services, load_view(tx, agent))

    return await services.store.write(work)


async def detach_block(services: Services, actor: Actor, agent_id: str, block_id: str) -> AgentView:
    def work(tx: Transaction) -> AgentView:
        agent = tx.agents.get(actor.organization_id, agent_id)
        if not tx.agents.detach_blocks(agent_id, [block_id]):
            raise NotFound(f"Block with ID {block_id} is not attached to agent '{agent_id}'")
        system_message.show_new_blocks(tx, [agent_id], services.clock.now())
        return embedding_choice.with_warnings(services, load_view(tx, agent))

    return await services.store.write(work)


def _get_block(tx: Transaction, actor: Actor, agent_id: str, label: str) -> Block:
    tx.agents.get(actor.organization_id, agent_id)
    for block in tx.agents.blocks([agent_id]).get(agent_id, ()):
        if block.label == label:
            return block
    raise NotFound(f"No block with label '{label}' found for agent '{agent_id}'")


def _save_rules(
    tx: Transaction,
    services: Services,
    actor: Actor,
    agent: Agent,
    rules: tuple[tool_rules.ToolRule, ...],
) -> None:
    if rules == agent.tool_rules:
        return
    tx.agents.save(
        replace(
            agent,
            tool_rules=rules,
            updated_at=services.clock.now(),
            last_updated_by_id=actor.user_id,
        )
    )
