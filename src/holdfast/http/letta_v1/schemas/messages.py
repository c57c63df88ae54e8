"""Messages in answers and streams (wire-v1 §3.7-§3.10). What a caller may send is in ``schemas.send``.

One stored row becomes several of these, all with the row's id. Fields that are null are written too.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.core.runs import StopReason

MessageType = Literal[
    "system_message",
    "user_message",
    "assistant_message",
    "reasoning_message",
    "hidden_reasoning_message",
    "tool_call_message",
    "tool_return_message",
    "approval_request_message",
    "approval_response_message",
    "summary_message",
    "event_message",
]

# Whole seconds with an offset (wire-v1 §1.9). Text, because msgspec would write `Z` and microseconds.
WholeSeconds = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Status = Literal["success", "error"]
# As text: OpenAPI would have the enumeration twice, here and as a query parameter.
StopReasonName = Annotated[str, Meta(extra_json_schema={"enum": [str(r) for r in StopReason]})]


class TextContent(Struct, frozen=True, tag="text", tag_field="type"):
    text: str
    signature: str | None = None


class Base64Image(Struct, frozen=True, kw_only=True, tag="base64", tag_field="type"):
    media_type: str
    data: str
    detail: str | None = None


class ImageContent(Struct, frozen=True, tag="image", tag_field="type"):
    """Images are stored and shown with their data, never by an address."""

    source: Base64Image


Content = str | list[TextContent | ImageContent]


class ToolCall(Struct, frozen=True, kw_only=True):
    """``arguments`` is JSON text."""

    name: str
    arguments: str
    tool_call_id: str


class ToolCallDelta(Struct, frozen=True, kw_only=True):
    """The next part of a call: first its name, then the JSON text of its arguments in parts."""

    name: str
    arguments: str | None = None
    tool_call_id: str


class ToolReturn(Struct, frozen=True, kw_only=True, tag="tool", tag_field="type"):
    tool_return: Content
    status: Status
    tool_call_id: str
    stdout: list[str] | None = None
    stderr: list[str] | None = None
    decided_by_id: str | UnsetType = UNSET
    decided_by: str | UnsetType = UNSET
    decided_at: datetime | UnsetType = UNSET


class ApprovalReturn(Struct, frozen=True, kw_only=True, tag="approval", tag_field="type"):
    """Not in V1: who decided (the user's id, and the name that the caller gave) and when, if it is known."""

    tool_call_id: str
    approve: bool
    reason: str | None = None
    decided_by_id: str | UnsetType = UNSET
    decided_by: str | UnsetType = UNSET
    decided_at: datetime | UnsetType = UNSET
    # The arguments that replaced those of the model.
    arguments: dict[str, Any] | UnsetType = UNSET


class CompactionStats(Struct, frozen=True, kw_only=True):
    trigger: str
    context_window: int
    messages_count_before: int
    messages_count_after: int
    context_tokens_before: int | None = None
    context_tokens_after: int | None = None


class MessageFields(Struct, frozen=True, kw_only=True, tag_field="message_type"):
    """The fields that every API message has."""

    id: str
    date: WholeSeconds
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    step_id: str | None = None
    run_id: str | None = None
    # Null unless true (wire-v1 §9.2).
    is_err: bool | None = None
    # Only on the items of a background or resumed stream.
    seq_id: int | None = None


class SystemMessage(MessageFields, frozen=True, kw_only=True, tag="system_message"):
    content: str


class UserMessage(MessageFields, frozen=True, kw_only=True, tag="user_message"):
    content: Content


class ReasoningMessage(MessageFields, frozen=True, kw_only=True, tag="reasoning_message"):
    reasoning: str
    source: Literal["reasoner_model", "non_reasoner_model"] = "reasoner_model"
    signature: str | None = None


class HiddenReasoningMessage(
    MessageFields, frozen=True, kw_only=True, tag="hidden_reasoning_message"
):
    state: Literal["redacted", "omitted"]
    hidden_reasoning: str | None = None


class AssistantMessage(MessageFields, frozen=True, kw_only=True, tag="assistant_message"):
    content: str


class ToolCallMessage(MessageFields, frozen=True, kw_only=True, tag="tool_call_message"):
    """``tool_call`` is the first of ``tool_calls``."""

    tool_call: ToolCall
    tool_calls: list[ToolCall]


class ToolReturnMessage(MessageFields, frozen=True, kw_only=True, tag="tool_return_message"):
    """The fields of the first entry of ``tool_returns`` are repeated beside it."""

    tool_return: str
    status: Status
    tool_call_id: str
    stdout: list[str] | None = None
    stderr: list[str] | None = None
    tool_returns: list[ToolReturn]


class ApprovalRequestMessage(
    MessageFields, frozen=True, kw_only=True, tag="approval_request_message"
):
    tool_call: ToolCall
    tool_calls: list[ToolCall]
    # Not in V1, and only for a pending request: when the first of its calls expires.
    expires_at: datetime | UnsetType = UNSET


class ApprovalResponseMessage(
    MessageFields, frozen=True, kw_only=True, tag="approval_response_message"
):
    """``approve``, ``approval_request_id`` (a tool call's id) and ``reason`` repeat the first decision."""

    approvals: list[ApprovalReturn | ToolReturn] | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None


class SummaryMessage(MessageFields, frozen=True, kw_only=True, tag="summary_message"):
    summary: str
    compaction_stats: CompactionStats | None = None


EventType = Literal["compaction", "tool_progress"]


class EventMessage(MessageFields, frozen=True, kw_only=True, tag="event_message"):
    event_type: EventType
    event_data: dict[str, Any]


ApiMessage = (
    SystemMessage
    | UserMessage
    | ReasoningMessage
    | HiddenReasoningMessage
    | AssistantMessage
    | ToolCallMessage
    | ToolReturnMessage
    | ApprovalRequestMessage
    | ApprovalResponseMessage
    | SummaryMessage
    | EventMessage
)


class ToolCallChunk(MessageFields, frozen=True, kw_only=True, tag="tool_call_message"):
    """The next part of a call. ``tool_calls`` is the same object, not a list as in a whole message (wire-v1 §4.5)."""

    tool_call: ToolCallDelta
    tool_calls: ToolCallDelta


class ApprovalRequestChunk(
    MessageFields, frozen=True, kw_only=True, tag="approval_request_message"
):
    tool_call: ToolCallDelta
    tool_calls: ToolCallDelta


class Ping(MessageFields, frozen=True, kw_only=True, tag="ping"):
    """Shows that the stream is alive. ``seq_id`` is that of the last item."""


class StopReasonItem(Struct, frozen=True, tag="stop_reason", tag_field="message_type"):
    stop_reason: StopReasonName


class UsageStatistics(
    Struct, frozen=True, kw_only=True, tag="usage_statistics", tag_field="message_type"
):
    """The cache and reasoning fields are null if the provider does not report them."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    step_count: int
    run_ids: list[str] | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    context_tokens: int | None = None


class ErrorMessage(
    Struct, frozen=True, kw_only=True, tag="error_message", tag_field="message_type"
):
    # Null if the request was refused before there was a run.
    run_id: str | None
    error_type: str
    message: str
    detail: str | None = None
    seq_id: int | None = None


StreamMessage = ApiMessage | ToolCallChunk | ApprovalRequestChunk
StreamItem = StreamMessage | Ping | StopReasonItem | UsageStatistics | ErrorMessage


class LettaResponse(Struct, frozen=True, kw_only=True):
    """The answer to a send that waits for the end of the run."""

    messages: list[ApiMessage]
    stop_reason: StopReasonItem
    usage: UsageStatistics
    logprobs: dict[str, Any] | None = None
    turns: list[dict[str, Any]] | None = None
