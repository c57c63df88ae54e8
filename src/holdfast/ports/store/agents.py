"""Agents with their tags, attached tools and blocks, and secrets."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.agents import Agent, AgentQuery, Secret
from holdfast.core.blocks import Block
from holdfast.core.runs import Run
from holdfast.core.tools import Tool


class Agents(Protocol):
    def add(self, agent: Agent) -> None:
        """Store a new agent."""
        ...

    def get(self, organization_id: str, agent_id: str) -> Agent:
        """Return the agent. NotFound: ``Agent with ID <id> not found``."""
        ...

    def get_for_update(self, organization_id: str, agent_id: str) -> Agent:
        """As ``get``, and lock the agent until the end of the transaction. For whoever saves what was read."""
        ...

    def find(self, organization_id: str, agent_ids: Collection[str]) -> Sequence[Agent]:
        """Return those of these agents that exist."""
        ...

    def find_for_update(self, organization_id: str, agent_ids: Collection[str]) -> Sequence[Agent]:
        """As ``find``, sorted by id, and lock the agents until the end of the transaction."""
        ...

    def lock_holders(self, tool_id: str, *, naming: str) -> Sequence[Agent]:
        """Return the agents with this tool whose fields have the word ``naming``, sorted by id, and lock them until the
        end of the transaction."""
        ...

    def save(self, agent: Agent) -> None:
        """Replace the agent. Its tags, tools, blocks, secrets and last-run fields are not written."""
        ...

    def delete(self, organization_id: str, agent_id: str) -> None:
        """Delete the agent with its threads, messages, runs, steps, events, links and secrets."""
        ...

    def list(self, organization_id: str, query: AgentQuery) -> Sequence[Agent]:
        """Return one page of the agents that match. An unknown cursor is ignored (wire-v1 §1.10)."""
        ...

    def count(self, organization_id: str, query: AgentQuery) -> int:
        """Count the agents that match, on all pages."""
        ...

    def record_run_end(self, run: Run) -> None:
        """Set the agent's last-run fields from a run that has ended. A run that only compacts is ignored (wire-v1
        §7.9)."""
        ...

    def set_last_run(
        self,
        agent_id: str,
        *,
        stop_reason: str | None,
        completed_at: datetime | None,
        duration_ms: int | None,
    ) -> None:
        """Set ``last_stop_reason``, ``last_run_completion`` and ``last_run_duration_ms``."""
        ...

    def tags(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the tags of each agent, sorted. Only agents with tags have an entry."""
        ...

    def set_tags(self, agent_id: str, tags: Collection[str]) -> None:
        """Replace all tags of the agent."""
        ...

    def all_tags(self, organization_id: str) -> Sequence[str]:
        """Return every tag of an agent or a block of the organisation, sorted and without duplicates."""
        ...

    def tools(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Tool]]:
        """Return the attached tools of each agent, in the order of attachment."""
        ...

    def holders(self, tool_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return, for each agent that has any of these tools, the ids of those that it has."""
        ...

    def attach_tools(self, agent_id: str, tool_ids: Sequence[str]) -> None:
        """Attach tools. A tool that is attached already keeps its place."""
        ...

    def detach_tools(self, agent_id: str, tool_ids: Collection[str]) -> None:
        """Detach tools. A tool that is not attached is ignored."""
        ...

    def blocks(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Block]]:
        """Return the attached blocks of each agent, in the order of attachment."""
        ...

    def attach_blocks(self, agent_id: str, block_ids: Sequence[str]) -> None:
        """Attach blocks. A block that is attached already keeps its place. AlreadyExists if two attached blocks would
        have the same label."""
        ...

    def detach_blocks(self, agent_id: str, block_ids: Collection[str]) -> bool:
        """Detach blocks; return whether any of them was attached."""
        ...

    def secrets(self, agent_ids: Collection[str]) -> Mapping[str, Sequence[Secret]]:
        """Return the secrets of each agent, with their values in clear text."""
        ...

    def set_secrets(self, agent_id: str, secrets: Sequence[Secret]) -> None:
        """Replace all secrets of the agent. Values are encrypted at rest."""
        ...
