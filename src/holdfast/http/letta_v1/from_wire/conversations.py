"""Conversations to create and to change, and what is sent to one (wire-v1 §2.7)."""

from typing import Any

from msgspec.structs import replace

from holdfast.core.messages import conversation_id
from holdfast.core.threads import Thread
from holdfast.http.letta_v1.from_wire import send
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.from_wire.model_settings import core_settings, dump_sent_fields
from holdfast.http.letta_v1.schemas.conversations import (
    ConversationCreate,
    ConversationFields,
    ConversationSend,
    ConversationUpdate,
)
from holdfast.usecases.conversations import (
    ConversationChanges,
    NewConversation,
    request_key,
)
from holdfast.usecases.messages import NewSend


def new_conversation(body: ConversationCreate) -> NewConversation:
    labels = tuple(body.isolated_block_labels or ())
    return NewConversation(hidden=body.hidden, isolated_block_labels=labels, **_shared_fields(body))


def conversation_changes(body: ConversationUpdate) -> ConversationChanges:
    return ConversationChanges(
        last_message_at=as_utc(body.last_message_at),
        archived=body.archived,
        **_shared_fields(body),
    )


def _shared_fields(body: ConversationFields) -> dict[str, Any]:
    given = body.model_settings
    return {
        "summary": body.summary,
        "description": body.description,
        "model": body.model,
        "settings": core_settings(given) if given else None,
        "model_settings": dump_sent_fields(given),
        "context_window_limit": body.context_window_limit,
    }


def new_send(thread: Thread, body: ConversationSend) -> NewSend:
    """A background send has a key made of its otids, so that a repeated one is recognised (wire-v1 §4.8)."""
    is_direct = conversation_id(thread.id, thread.agent_id) is None
    new = send.new_send(
        thread.agent_id,
        body,
        thread_id=thread.id,
        kind="send_message" if is_direct else "send_conversation_message",
        streaming=body.streaming,
    )
    return replace(new, request_key=request_key(new.input)) if new.background else new
