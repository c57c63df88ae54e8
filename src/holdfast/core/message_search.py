"""Search for what was said: which messages can be found, and how a search is limited."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.messages import Message, Role
from holdfast.core.search import Match

# What was said, and summaries of it.
SEARCHABLE_ROLES = (Role.USER, Role.ASSISTANT, Role.SUMMARY)
# The tool that searches. Its own calls are not found: each would find the ones before.
SEARCH_TOOL = "conversation_search"


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Which messages are meant. Conditions combine with AND; None means any."""

    agent_id: str | None = None
    thread_id: str | None = None
    roles: tuple[Role, ...] = SEARCHABLE_ROLES
    # Both included.
    since: datetime | None = None
    until: datetime | None = None


class FoundMessage(Struct, frozen=True):
    message: Message
    match: Match


def is_searchable(message: Message) -> bool:
    """Whether the message can be found by its words."""
    return (
        message.role in SEARCHABLE_ROLES
        and not message.hidden
        and bool(message.text)
        and all(call.name != SEARCH_TOOL for call in message.tool_calls)
    )
