"""Searches for messages (wire-v1 §2.3, §2.11)."""

from datetime import UTC

from holdfast.core.message_search import SEARCHABLE_ROLES, MessageFilter
from holdfast.core.periods import first_moment, last_moment
from holdfast.http.letta_v1.schemas.message_search import (
    AgentMessageSearchBody,
    MessageSearchFields,
)


def message_filter(body: MessageSearchFields, thread_id: str | None) -> MessageFilter:
    roles = body.roles if isinstance(body, AgentMessageSearchBody) else None
    return MessageFilter(
        agent_id=body.agent_id,
        thread_id=thread_id,
        roles=tuple(role for role in SEARCHABLE_ROLES if not roles or role in roles),
        since=first_moment(body.start_date, UTC),
        until=last_moment(body.end_date, UTC),
    )
