"""Making a context smaller, on the wire (wire-v1 §2.2, §2.7)."""

from msgspec import Struct

from holdfast.http.letta_v1.schemas.conversations import DirectAgentId
from holdfast.http.letta_v1.schemas.model_settings import CompactionInput
from holdfast.http.letta_v1.schemas.send import Lenient


class CompactBody(Lenient):
    # What is given here goes over the agent's own settings, field by field.
    compaction_settings: CompactionInput | None = None


class CompactConversationBody(CompactBody):
    agent_id: DirectAgentId = None


class CompactionResponse(Struct, frozen=True, kw_only=True):
    summary: str
    num_messages_before: int
    num_messages_after: int
