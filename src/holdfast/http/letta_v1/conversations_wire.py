"""Conversations between wire and core (wire-v1 §2.7, §3.13), and the three ways to name one."""

from typing import Annotated, Any

from fastapi import Path
from msgspec.structs import replace

from holdfast.core.ids import UUID4, Kind, is_id
from holdfast.core.messages import conversation_id, default_thread_id
from holdfast.core.threads import DEFAULT_CONVERSATION, Thread
from holdfast.errors import InvalidArgument, NotFound
from holdfast.http.letta_v1 import from_wire, model_wire
from holdfast.http.letta_v1.ids import EXAMPLE_UUID
from holdfast.http.letta_v1.schemas.conversations import (
    Conversation,
    ConversationCreate,
    ConversationFields,
    ConversationSend,
    ConversationUpdate,
)
from holdfast.usecases.conversations import (
    ConversationChanges,
    ConversationView,
    NewConversation,
    request_key,
)
from holdfast.usecases.messages import NewSend

ConversationName = Annotated[
    str,
    Path(
        pattern=f"^({DEFAULT_CONVERSATION}|({Kind.CONVERSATION}|{Kind.AGENT})-{UUID4})$",
        description="A conversation, 'conv-<uuid4>'; or 'default' together with an agent_id; "
        "or (old) an agent's id.",
        examples=[f"{Kind.CONVERSATION}-{EXAMPLE_UUID}"],
    ),
]


def thread_id(name: str, agent_id: str | None) -> str:
    """The thread that the path names. With a conversation's own id, the agent is not heeded."""
    if name != DEFAULT_CONVERSATION:
        return name
    if agent_id is None:
        raise InvalidArgument("The conversation 'default' needs the agent_id of its agent.")
    if not is_id(Kind.AGENT, agent_id):
        raise NotFound(f"Agent with ID {agent_id} not found")
    return default_thread_id(agent_id)


def new_conversation(body: ConversationCreate) -> NewConversation:
    labels = tuple(body.isolated_block_labels or ())
    return NewConversation(hidden=body.hidden, isolated_block_labels=labels, **_shared_fields(body))


def conversation_changes(body: ConversationUpdate) -> ConversationChanges:
    return ConversationChanges(
        last_message_at=from_wire.as_utc(body.last_message_at),
        archived=body.archived,
        **_shared_fields(body),
    )


def _shared_fields(body: ConversationFields) -> dict[str, Any]:
    given = body.model_settings
    return {
        "summary": body.summary,
        "description": body.description,
        "model": body.model,
        "settings": model_wire.core_settings(given) if given else None,
        "model_settings": model_wire.dump_sent_fields(given),
        "context_window_limit": body.context_window_limit,
    }


def new_send(thread: Thread, body: ConversationSend) -> NewSend:
    """A background send is known again if it is repeated, by its otids (wire-v1 §4.8)."""
    is_direct = conversation_id(thread.id, thread.agent_id) is None
    new = from_wire.new_send(
        thread.agent_id,
        body,
        thread_id=thread.id,
        kind="send_message" if is_direct else "send_conversation_message",
        streaming=body.streaming,
    )
    return replace(new, request_key=request_key(new.input)) if new.background else new


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
