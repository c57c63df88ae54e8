"""Conversations as V1 shows them (wire-v1 §3.13)."""

from holdfast.http.letta_v1.schemas.conversations import (
    Conversation,
)
from holdfast.usecases.conversations import (
    ConversationView,
)


def api_conversation(view: ConversationView) -> Conversation:
    thread = view.thread
    return Conversation(
        id=thread.id,
        agent_id=thread.agent_id,
        summary=thread.summary,
        description=thread.description,
        in_context_message_ids=list(view.message_ids),
        model=thread.model,
        model_settings=thread.model_settings,
        context_window_limit=thread.context_window_limit,
        archived=thread.archived_at is not None,
        archived_at=thread.archived_at,
        last_message_at=thread.last_message_at,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        created_by_id=thread.created_by_id,
        last_updated_by_id=thread.last_updated_by_id,
        isolated_block_ids=list(view.isolated_block_ids),
        model_warnings=list(view.model_warnings),
    )
