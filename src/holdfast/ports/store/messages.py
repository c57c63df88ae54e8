"""Messages and contexts. A thread's history is all of its messages; its context is what the model is shown of them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from holdfast.core.embeddings import QueryVector
from holdfast.core.message_search import FoundMessage, MessageFilter
from holdfast.core.messages import Message
from holdfast.core.paging import Page


class Messages(Protocol):
    """``message_ids`` of an agent is computed from the context and not stored anywhere else."""

    def append(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Store messages at the end of their thread and of its context; return them with their positions."""
        ...

    def rewrite(self, message: Message) -> None:
        """Replace the content of a stored message in place. Only for the compiled system message."""
        ...

    def get(self, organization_id: str, message_id: str) -> Message:
        """Return the message. NotFound: ``Message with ID <id> not found``."""
        ...

    def find(self, organization_id: str, message_ids: Sequence[str]) -> Sequence[Message]:
        """Return these messages in this order. NotFound, as for ``get``, if one of them does not exist."""
        ...

    def context(self, thread_id: str) -> Sequence[Message]:
        """Return the messages that the model is shown, in order, the system message first."""
        ...

    def context_ids(self, thread_ids: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the message ids of each thread's context, in order."""
        ...

    def context_heads(self, thread_ids: Collection[str]) -> Sequence[Message]:
        """Return the first message of each context that is not empty."""
        ...

    def set_context(self, thread_id: str, message_ids: Sequence[str]) -> None:
        """Replace the context by these messages, in this order. The history does not change."""
        ...

    def replace_in_context(self, message: Message, message_ids: Sequence[str]) -> Message:
        """Store ``message`` and show it in place of ``message_ids``, which are neighbours in its thread's context and
        stay in the history. Concurrent changes of the context are kept: only the ids that are still shown are
        replaced, and if none is, ``message`` is stored but not shown."""
        ...

    def hide(self, thread_id: str, message_ids: Sequence[str]) -> None:
        """Remove these messages from the context; they stay in the history. Concurrent changes of the context are
        kept."""
        ...

    def share(self, source_id: str, thread_id: str, message_ids: Sequence[str]) -> None:
        """Add messages of the thread ``source_id`` to the history of ``thread_id``, for as long as that exists."""
        ...

    def list(
        self,
        organization_id: str,
        page: Page,
        *,
        agent_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
    ) -> Sequence[Message]:
        """Return one page of the messages that match, sorted by position in the direction of ``page.order``. A
        thread's list includes the messages that are shared with it. Unlike in other lists, ``after`` means newer
        and ``before`` older messages in both directions."""
        ...

    def list_approval_messages(self, step_ids: Collection[str]) -> Sequence[Message]:
        """Return the approval messages of these steps by position: the requests, and the decisions on them."""
        ...

    def count(self, agent_id: str, thread_id: str | None = None) -> int:
        """Count the messages of the agent, or of one of its threads."""
        ...

    def count_by_agent(self, agent_ids: Collection[str]) -> Mapping[str, int]:
        """Count the messages of each agent. Only agents with messages have an entry."""
        ...

    def count_vector_bytes(self, organization_id: str) -> int:
        """Return how many bytes the vectors of all messages have."""
        ...

    def search(
        self,
        organization_id: str,
        where: MessageFilter,
        query: str,
        limit: int,
        vector: QueryVector | None = None,
        *,
        by_words: bool = True,
    ) -> Sequence[FoundMessage]:
        """Return the messages that have words of the query and match, best first: more words, and rarer ones, are better.
        Without any word in the query the newest ones that contain it as it is, or all if it is empty. What lists show is
        found: also messages that are in no context any more, and those that are shared with a fork. ``vector``: what the
        query means to the model of the messages' vectors; those that are nearest to it are found too, or without
        ``by_words`` only those."""
        ...
