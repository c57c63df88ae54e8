"""Compacting a context (wire-v1 §2.2, §2.7)."""

from msgspec import Struct

from holdfast.http.letta_v1.schemas.conversations import DirectAgentId
from holdfast.http.letta_v1.schemas.model_settings import CompactionInput
from holdfast.http.letta_v1.schemas.send import LenientModel


class CompactBody(LenientModel):
    # Each field that is given replaces that of the agent's own settings.
    compaction_settings: CompactionInput | None = None


class CompactConversationBody(CompactBody):
    agent_id: DirectAgentId = None


class CompactionResponse(Struct, frozen=True, kw_only=True):
    summary: str
    num_messages_before: int
    num_messages_after: int
