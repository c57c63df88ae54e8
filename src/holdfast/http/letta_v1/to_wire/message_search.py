"""Found messages as V1 shows them (wire-v1 §2.3, §2.11)."""

from collections.abc import Iterator
from typing import Any

from holdfast.core.message_search import FoundMessage, searchable_text
from holdfast.core.messages import Message, Role, conversation_id
from holdfast.http.letta_v1.schemas import message_search as wire
from holdfast.http.letta_v1.schemas.messages import AssistantMessage, ReasoningMessage
from holdfast.http.letta_v1.to_wire.context import internal_message
from holdfast.http.letta_v1.to_wire.messages import AssistantMessageTool, api_messages


def message_results(item: FoundMessage) -> Iterator[wire.MessageResult]:
    """The reasoning and the text of a row, all with its id. Images are left out: they would make the answer huge."""
    row = item.message
    common: dict[str, Any] = {
        "message_id": row.id,
        "created_at": row.created_at,
        "agent_id": row.agent_id,
        "conversation_id": conversation_id(row.thread_id, row.agent_id),
    }
    if row.role is not Role.ASSISTANT:
        yield wire.UserMessageResult(**common, content=searchable_text(row))
    else:
        yield from _answer_results(row, common)


def agent_message_result(item: FoundMessage) -> wire.AgentMessageResult:
    return wire.AgentMessageResult(
        embedded_text=searchable_text(item.message),
        message=internal_message(item.message),
        fts_rank=item.match.word_rank,
        vector_rank=item.match.vector_rank,
        rrf_score=item.match.score,
    )


def _answer_results(row: Message, common: dict[str, Any]) -> Iterator[wire.MessageResult]:
    for piece in api_messages(row, AssistantMessageTool()):
        if isinstance(piece, ReasoningMessage):
            yield wire.ReasoningMessageResult(**common, reasoning=piece.reasoning)
        elif isinstance(piece, AssistantMessage):
            yield wire.AssistantMessageResult(**common, content=piece.content)
