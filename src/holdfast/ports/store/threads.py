"""Threads: the default thread of each agent, and its conversations."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.threads import Thread, ThreadQuery


class Threads(Protocol):
    def add(self, thread: Thread) -> None:
        """Store a new thread."""
        ...

    def get(self, organization_id: str, thread_id: str) -> Thread:
        """Return the thread. NotFound: ``Conversation with ID <id> not found``."""
        ...

    def save(self, thread: Thread) -> None:
        """Replace the thread."""
        ...

    def record_request(self, thread_id: str, now: datetime) -> None:
        """Set ``last_message_at``. NotFound if the thread is deleted, also if the transaction that deletes it commits
        at the same time: after this call the thread stays until the caller's own commit."""
        ...

    def delete(self, organization_id: str, thread_id: str, now: datetime) -> None:
        """Delete the conversation with its runs and blocks. Messages that a fork shares stay until no fork does."""
        ...

    def delete_history(
        self, organization_id: str, agent_id: str, thread_id: str | None, limit: int
    ) -> bool:
        """Delete at most ``limit`` messages that no context shows and no fork shares, and as many runs that are over: of
        the thread, or of all threads of the agent. Return whether more may be left."""
        ...

    def list(self, organization_id: str, query: ThreadQuery) -> Sequence[Thread]:
        """Return one page of the conversations that match; default threads are not among them. Conversations without
        the value that the list is sorted by come last."""
        ...

    def list_of_agent(self, agent_id: str) -> Sequence[Thread]:
        """Return all threads of the agent, the default thread first."""
        ...

    def list_of_agents(self, agent_ids: Collection[str]) -> Sequence[Thread]:
        """Return all threads of these agents, the default thread of each first."""
        ...
