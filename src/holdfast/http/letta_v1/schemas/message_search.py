"""Searching messages (wire-v1 §2.3, §2.11)."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.message_search import SearchMode
from holdfast.http.letta_v1.schemas.context import InternalMessage
from holdfast.http.letta_v1.schemas.limits import MAX_NAMES
from holdfast.http.letta_v1.schemas.names import MAX_NAME_CHARS, ScopeId

Identity = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
MessageRole = Literal["assistant", "user", "tool", "function", "system", "approval", "summary"]


class MessageSearchFields(BaseModel):
    model_config = ConfigDict(extra="ignore")

    search_mode: SearchMode = SearchMode.HYBRID
    agent_id: Identity | None = None
    conversation_id: Identity | None = Field(
        None, description="A conversation; or 'default' together with an agent_id."
    )
    limit: int = Field(50, ge=1, le=100)
    start_date: datetime | None = None
    end_date: datetime | None = Field(None, description="Included; a date means its whole day.")


class MessageSearchBody(MessageSearchFields):
    query: str = Field(description="Its first 64 different words count.")


class AgentMessageSearchBody(MessageSearchFields):
    query: str | None = Field(None, description="The newest messages if not given.")
    roles: Annotated[list[MessageRole], Field(max_length=MAX_NAMES)] | None = None
    # Accepted as in V1: messages do not belong to projects or templates.
    project_id: ScopeId | None = None
    template_id: ScopeId | None = None


class MessageResultFields(Struct, frozen=True, kw_only=True, tag_field="message_type"):
    message_id: str
    created_at: datetime
    agent_id: str
    conversation_id: str | None


class UserMessageResult(MessageResultFields, frozen=True, kw_only=True, tag="user_message"):
    content: str


class ReasoningMessageResult(
    MessageResultFields, frozen=True, kw_only=True, tag="reasoning_message"
):
    reasoning: str


class AssistantMessageResult(
    MessageResultFields, frozen=True, kw_only=True, tag="assistant_message"
):
    content: str


MessageResult = UserMessageResult | ReasoningMessageResult | AssistantMessageResult


class AgentMessageResult(Struct, frozen=True, kw_only=True):
    embedded_text: str
    message: InternalMessage
    fts_rank: int | None
    vector_rank: int | None
    rrf_score: float
