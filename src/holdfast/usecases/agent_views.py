"""Agents with their relations. Each relation is loaded by one query for a whole page of agents."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from holdfast.core.agents import Agent, Secret
from holdfast.core.blocks import Block
from holdfast.core.expiry import first_deadline
from holdfast.core.messages import CallState, Message, Role, default_thread_id
from holdfast.core.tools import Tool
from holdfast.ports.store import Transaction


class Relation(StrEnum):
    """A relation that a caller may request with an agent."""

    TOOLS = "tools"
    BLOCKS = "blocks"
    TAGS = "tags"
    SECRETS = "secrets"
    PENDING = "pending"


# The relations in the answer to an update of the agent (wire-v1 §2.2).
DEFAULT_RELATIONS: Final = frozenset(
    {Relation.TOOLS, Relation.BLOCKS, Relation.TAGS, Relation.SECRETS}
)


class PendingApproval(Struct, frozen=True):
    """The message that requests an approval, and its deadline; None means no deadline."""

    row: Message
    deadline: datetime | None


class AgentView(Struct, frozen=True, kw_only=True):
    """An agent and the relations that were requested."""

    agent: Agent
    message_ids: tuple[str, ...]
    tools: tuple[Tool, ...] = ()
    blocks: tuple[Block, ...] = ()
    tags: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    # The approval that the default thread waits for.
    pending: PendingApproval | None = None
    # A sentence if the agent's embedding model cannot be used now.
    embedding_warnings: tuple[str, ...] = ()


def load_views(
    tx: Transaction, agents: Sequence[Agent], relations: Collection[Relation]
) -> list[AgentView]:
    ids = [agent.id for agent in agents]
    if not ids:
        return []
    contexts = tx.messages.context_ids([default_thread_id(agent_id) for agent_id in ids])
    tools: Mapping[str, Sequence[Tool]] = {}
    blocks: Mapping[str, Sequence[Block]] = {}
    tags: Mapping[str, Sequence[str]] = {}
    secrets: Mapping[str, Sequence[Secret]] = {}
    if Relation.TOOLS in relations:
        tools = tx.agents.tools(ids)
    if Relation.BLOCKS in relations:
        blocks = tx.agents.blocks(ids)
    if Relation.TAGS in relations:
        tags = tx.agents.tags(ids)
    if Relation.SECRETS in relations:
        secrets = tx.agents.secrets(ids)
    return [
        AgentView(
            agent=agent,
            message_ids=tuple(contexts.get(default_thread_id(agent.id), ())),
            tools=tuple(tools.get(agent.id, ())),
            blocks=tuple(blocks.get(agent.id, ())),
            tags=tuple(tags.get(agent.id, ())),
            secrets=tuple(secrets.get(agent.id, ())),
            pending=_load_pending(tx, agent) if Relation.PENDING in relations else None,
        )
        for agent in agents
    ]


def load_view(
    tx: Transaction, agent: Agent, relations: Collection[Relation] = DEFAULT_RELATIONS
) -> AgentView:
    return load_views(tx, [agent], relations)[0]


def _load_pending(tx: Transaction, agent: Agent) -> PendingApproval | None:
    """The message with the open calls, if they wait for a person (wire-v1 §6.9)."""
    calls = tx.calls.list_open(default_thread_id(agent.id))
    held = next((call for call in calls if call.state is CallState.HELD), None)
    if held is None:
        return None
    row = tx.messages.get(agent.organization_id, held.message_id)
    return PendingApproval(row, first_deadline(calls)) if row.role is Role.APPROVAL else None
