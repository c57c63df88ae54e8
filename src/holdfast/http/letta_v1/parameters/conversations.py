"""The conversation that a path or a query names (wire-v1 §2.7)."""

from typing import Annotated

from fastapi import Path

from holdfast.core.ids import UUID4, Kind, is_id
from holdfast.core.messages import default_thread_id
from holdfast.core.threads import DEFAULT_CONVERSATION
from holdfast.errors import InvalidArgument, NotFound
from holdfast.http.letta_v1.schemas.names import EXAMPLE_UUID

ConversationName = Annotated[
    str,
    Path(
        pattern=f"^({DEFAULT_CONVERSATION}|({Kind.CONVERSATION}|{Kind.AGENT})-{UUID4})$",
        description="A conversation, 'conv-<uuid4>'; or 'default' together with an agent_id; "
        "or (old) an agent's id.",
        examples=[f"{Kind.CONVERSATION}-{EXAMPLE_UUID}"],
    ),
]


def agent_thread_id(conversation_id: str, agent_id: str) -> str:
    """The thread that a query names beside an agent: a conversation's id, or 'default'."""
    is_default = conversation_id == DEFAULT_CONVERSATION
    return default_thread_id(agent_id) if is_default else conversation_id


def thread_id(name: str, agent_id: str | None) -> str:
    """The thread that the path names. The agent only matters for 'default'."""
    if name != DEFAULT_CONVERSATION:
        return name
    if agent_id is None:
        raise InvalidArgument("The conversation 'default' needs the agent_id of its agent.")
    if not is_id(Kind.AGENT, agent_id):
        raise NotFound(f"Agent with ID {agent_id} not found")
    return default_thread_id(agent_id)
