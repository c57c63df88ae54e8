"""Searches for messages (wire-v1 §2.3, §2.11)."""

from holdfast.core.local_time import range_end
from holdfast.core.message_search import SEARCHABLE_ROLES, MessageFilter
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.schemas.message_search import (
    AgentMessageSearchBody,
    MessageSearchFields,
)


def message_filter(body: MessageSearchFields, thread_id: str | None) -> MessageFilter:
    roles = body.roles if isinstance(body, AgentMessageSearchBody) else None
    end = as_utc(body.end_date)
    return MessageFilter(
        agent_id=body.agent_id,
        thread_id=thread_id,
        roles=tuple(role for role in SEARCHABLE_ROLES if not roles or role in roles),
        since=as_utc(body.start_date),
        until=end and range_end(end),
    )
