"""Agents with their relations. Each relation is loaded by one query for a whole page of agents."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast import system_message
from holdfast.core.agent_files import FileView
from holdfast.core.agents import Agent, Secret
from holdfast.core.blocks import Block
from holdfast.core.expiry import first_deadline
from holdfast.core.files import Folder
from holdfast.core.messages import CallState, Message, Role, default_thread_id
from holdfast.core.tools import Tool
from holdfast.ports.store import Transaction
from holdfast.usecases import identity_links
from holdfast.usecases.identity_links import IdentityView

_Load = Callable[[Transaction, Sequence[Agent]], Mapping[str, Sequence[Any]]]


class Relation(StrEnum):
    """A relation that a caller may request with an agent."""

    TOOLS = "tools"
    BLOCKS = "blocks"
    TAGS = "tags"
    SECRETS = "secrets"
    PENDING = "pending"
    FOLDERS = "folders"
    IDENTITIES = "identities"


# The relations in the answer to an update of the agent (wire-v1 §2.2).
DEFAULT_RELATIONS: Final = frozenset(
    {
        Relation.TOOLS,
        Relation.BLOCKS,
        Relation.TAGS,
        Relation.SECRETS,
        Relation.FOLDERS,
        Relation.IDENTITIES,
    }
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
    # What it sees of its files. They come with the blocks.
    files: tuple[FileView, ...] = ()
    folders: tuple[Folder, ...] = ()
    identities: tuple[IdentityView, ...] = ()
    tags: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    # The approval that the default thread waits for.
    pending: PendingApproval | None = None
    # A sentence if the agent's embedding model cannot be used now.
    embedding_warnings: tuple[str, ...] = ()


# What one query loads for a page of agents, by the id of each: the field of the view, and the relation that it belongs to.
_LOADERS: Final[Mapping[str, tuple[Relation, _Load]]] = {
    "tools": (Relation.TOOLS, lambda tx, agents: tx.agents.tools(_ids(agents))),
    "blocks": (Relation.BLOCKS, lambda tx, agents: tx.agents.blocks(_ids(agents))),
    "files": (Relation.BLOCKS, system_message.load_file_views),
    "folders": (Relation.FOLDERS, lambda tx, agents: tx.agent_files.folders(_ids(agents))),
    "identities": (
        Relation.IDENTITIES,
        lambda tx, agents: identity_links.load_of_agents(tx, _ids(agents)),
    ),
    "tags": (Relation.TAGS, lambda tx, agents: tx.agents.tags(_ids(agents))),
    "secrets": (Relation.SECRETS, lambda tx, agents: tx.agents.secrets(_ids(agents))),
}


def load_views(
    tx: Transaction, agents: Sequence[Agent], relations: Collection[Relation]
) -> list[AgentView]:
    if not agents:
        return []
    contexts = tx.messages.context_ids([default_thread_id(agent.id) for agent in agents])
    loaded = {
        field: load(tx, agents)
        for field, (relation, load) in _LOADERS.items()
        if relation in relations
    }
    return [
        AgentView(
            agent=agent,
            message_ids=tuple(contexts.get(default_thread_id(agent.id), ())),
            pending=_load_pending(tx, agent) if Relation.PENDING in relations else None,
            **{field: tuple(by_agent.get(agent.id, ())) for field, by_agent in loaded.items()},
        )
        for agent in agents
    ]


def load_view(
    tx: Transaction, agent: Agent, relations: Collection[Relation] = DEFAULT_RELATIONS
) -> AgentView:
    return load_views(tx, [agent], relations)[0]


def _ids(agents: Sequence[Agent]) -> list[str]:
    return [agent.id for agent in agents]


def _load_pending(tx: Transaction, agent: Agent) -> PendingApproval | None:
    """The message with the open calls, if they wait for a person (wire-v1 §6.9)."""
    calls = tx.calls.list_open(default_thread_id(agent.id))
    held = next((call for call in calls if call.state is CallState.HELD), None)
    if held is None:
        return None
    row = tx.messages.get(agent.organization_id, held.message_id)
    return PendingApproval(row, first_deadline(calls)) if row.role is Role.APPROVAL else None
