"""Search for what was said: which messages can be found and by which text, and how a search is limited."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.core.messages import Message, Role, sent_texts
from holdfast.core.search import Match
from holdfast.core.summaries import unpack

# What was said, and summaries of it.
SEARCHABLE_ROLES = (Role.USER, Role.ASSISTANT, Role.SUMMARY)
# The tool that searches. Its own calls are not found: each would find the ones before.
SEARCH_TOOL = "conversation_search"


class SearchMode(StrEnum):
    """What a caller wants to search by: words, vectors where there are any, or both."""

    WORDS = "fts"
    VECTOR = "vector"
    HYBRID = "hybrid"


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Which messages are meant. Conditions combine with AND; None means any. ``thread_id``: the history of this thread,
    which of a fork has messages of other threads too."""

    agent_id: str | None = None
    thread_id: str | None = None
    roles: tuple[Role, ...] = SEARCHABLE_ROLES
    # Both included.
    since: datetime | None = None
    until: datetime | None = None


class FoundMessage(Struct, frozen=True):
    message: Message
    match: Match


def searchable_text(message: Message) -> str:
    """The text by which the message is found; empty if it cannot be found."""
    if message.hidden or message.role not in SEARCHABLE_ROLES:
        return ""
    if message.role is Role.SUMMARY:
        return unpack(message).summary
    if not message.tool_calls:
        return message.text
    if any(call.name == SEARCH_TOOL for call in message.tool_calls):
        return ""
    return "\n".join(filter(None, (message.text, *sent_texts(message))))
