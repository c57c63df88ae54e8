"""The end of a run as V1 shows it: the answer to a send, its usage, its error (wire-v1 §3.9, §4.6)."""

from collections.abc import Sequence
from typing import Final

from holdfast.core.events import RunEnded
from holdfast.core.messages import Message, Role
from holdfast.core.runs import RunFailure
from holdfast.http.letta_v1.schemas import messages as wire
from holdfast.http.letta_v1.to_wire.messages import (
    api_messages,
    message_type,
    summary_message,
)
from holdfast.http.letta_v1.to_wire.unblock_hint import unblock_hint
from holdfast.usecases.messages import Reply

# The error types that V1 clients know (wire-v1 §4.6). Every failure is shown as one of them.
ERROR_TYPES: Final = frozenset(
    {
        "llm_timeout",
        "llm_rate_limit",
        "llm_authentication",
        "llm_empty_response",
        "llm_error",
        "context_window_overflow_in_system_prompt",
        "internal_error",
        "stream_incomplete",
        "cleanup_error",
        "stream_task_cancelled",
    }
)


def letta_response(reply: Reply) -> wire.LettaResponse:
    request = reply.run.request
    types, summaries = request.include_return_message_types, request.include_compaction_messages
    rows = [row for row in reply.messages if summaries or row.role is not Role.SUMMARY]
    shown = [message for row in rows for message in _row_messages(row)]
    return wire.LettaResponse(
        messages=[item for item in shown if types is None or message_type(item) in types],
        stop_reason=wire.StopReasonItem(reply.ended.stop_reason),
        usage=usage_statistics(reply.ended),
    )


def _row_messages(row: Message) -> Sequence[wire.ApiMessage]:
    return [summary_message(row)] if row.role is Role.SUMMARY else api_messages(row)


def usage_statistics(ended: RunEnded) -> wire.UsageStatistics:
    usage = ended.usage
    return wire.UsageStatistics(
        completion_tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        total_tokens=usage.total_tokens,
        step_count=ended.step_count,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        context_tokens=ended.context_tokens,
    )


def error_message(run_id: str, failure: RunFailure) -> wire.ErrorMessage:
    return wire.ErrorMessage(
        run_id=run_id,
        error_type=error_type(failure.kind),
        message=failure.message,
        detail=(failure.detail + unblock_hint(failure.pending_request_id, failure.pending_calls))
        or None,
    )


def error_type(kind: str) -> str:
    """The V1 error type for a kind of failure."""
    if kind in ERROR_TYPES:
        return kind
    return "llm_error" if kind.startswith("llm_") else "internal_error"
