"""Conversations (wire-v1 §2.7, §3.13)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import Field

from holdfast.http.letta_v1.schemas.limits import MAX_BLOCKS
from holdfast.http.letta_v1.schemas.model_settings import ModelSettingsInput, Positive
from holdfast.http.letta_v1.schemas.runs import ResumeBody
from holdfast.http.letta_v1.schemas.send import LenientModel, SendBody

ArchiveStatus = Literal["unarchived", "archived", "all"]

# For the conversation "default": the agent whose default thread it is.
DirectAgentId = Annotated[
    str | None, Field(description="The agent, where the conversation is 'default'.")
]


class ConversationFields(LenientModel):
    """The fields that create and update share. Unknown fields are ignored (wire-v1 §1.7)."""

    summary: str | None = None
    description: str | None = None
    model: Annotated[str | None, Field(description="A handle; the agent's model if not given.")] = (
        None
    )
    model_settings: ModelSettingsInput | None = None
    context_window_limit: Positive | None = None


class ConversationCreate(ConversationFields):
    hidden: Annotated[bool | None, Field(description="Not to be shown in lists.")] = None
    isolated_block_labels: Annotated[
        Annotated[list[str], Field(max_length=MAX_BLOCKS)] | None,
        Field(description="The agent's blocks of which the conversation gets copies of its own."),
    ] = None


class ConversationUpdate(ConversationFields):
    """Null leaves a field unchanged."""

    last_message_at: datetime | None = None
    archived: bool | None = None


class ConversationSend(SendBody):
    streaming: bool = True
    agent_id: DirectAgentId = None


class ConversationResume(ResumeBody):
    agent_id: DirectAgentId = None
    run_id: Annotated[
        str | None, Field(description="Any run; the newest active one if not given.")
    ] = None
    # Limited, because databases search for it and cannot search for texts of any length.
    otid: Annotated[
        str | None, Field(max_length=1_000, description="An otid that the run was sent.")
    ] = None


class ConversationTarget(LenientModel):
    agent_id: DirectAgentId = None


class Conversation(Struct, frozen=True, kw_only=True):
    id: str
    agent_id: str
    summary: str | None
    description: str | None
    in_context_message_ids: list[str]
    model: str | None
    model_settings: dict[str, Any] | None
    context_window_limit: int | None
    archived: bool
    archived_at: datetime | None
    last_message_at: datetime | None
    created_at: datetime
    updated_at: datetime
    created_by_id: str | None
    last_updated_by_id: str | None
    isolated_block_ids: list[str]
    # Not in V1, and empty in lists: a sentence for each setting of the model that has no effect.
    model_warnings: list[str] = []
