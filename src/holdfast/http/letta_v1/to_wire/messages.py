"""Stored messages as V1 shows them (wire-v1 §3.7). One row becomes several API messages, all with its id."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from holdfast.core.ids import derived_otid
from holdfast.core.messages import (
    Decision,
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from holdfast.core.pieces import Piece, PieceKind, pieces
from holdfast.core.summaries import unpack
from holdfast.http.letta_v1.schemas import messages as wire


class AssistantMessageTool(Struct, frozen=True):
    """The tool that older agents used to answer the user. Lists show its calls as assistant messages."""

    tool: str = "send_message"
    argument: str = "message"


def api_messages(
    row: Message, message_tool: AssistantMessageTool | None = None
) -> list[wire.ApiMessage]:
    """All API messages of a row, one for each of its pieces."""
    found = pieces(row) if message_tool is None else _listing_pieces(row, message_tool)
    return [_api_message(row, index, piece, message_tool) for index, piece in enumerate(found)]


def api_listing(
    rows: Iterable[Message],
    types: Collection[str] | None = None,
    message_tool: AssistantMessageTool | None = None,
) -> list[wire.ApiMessage]:
    """The messages of the rows in their order. With ``types``, only messages of these types."""
    shown = [message for row in rows for message in api_messages(row, message_tool)]
    if types is None:
        return shown
    return [message for message in shown if message_type(message) in types]


def summary_message(row: Message) -> wire.SummaryMessage:
    """The row of a compaction, for callers that asked for compaction messages (wire-v1 §7.9)."""
    packed = unpack(row)
    stats = packed.compaction_stats
    return wire.SummaryMessage(
        **_common_fields(row, derived_otid(row.id, 0)),
        summary=packed.message,
        compaction_stats=wire.CompactionStats(**asdict(stats)) if stats else None,
    )


def message_type(message: wire.StreamMessage) -> str:
    return str(message.__struct_config__.tag)


def _common_fields(row: Message, otid: str | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "date": row.created_at.isoformat(timespec="seconds"),
        "name": row.name,
        "otid": otid,
        "sender_id": row.sender_id,
        "step_id": row.step_id,
        "run_id": row.run_id,
    }


def _api_message(
    row: Message, index: int, piece: Piece, message_tool: AssistantMessageTool | None
) -> wire.ApiMessage:
    """One piece of a row. Its otid depends on its position in the row (wire-v1 §1.8)."""
    if piece.kind is PieceKind.MESSAGE:
        return _whole_message(row, message_tool)
    common = _common_fields(
        row, derived_otid(row.id, -1 if piece.kind is PieceKind.HELD_CALLS else index)
    )
    match piece.kind:
        case PieceKind.TEXT:
            content = "".join(_part_text(part) for part in piece.parts)
            return wire.AssistantMessage(**common, content=content)
        case PieceKind.TOOL_CALLS:
            calls = [api_call(call) for call in piece.calls]
            return wire.ToolCallMessage(**common, tool_call=calls[0], tool_calls=calls)
        case PieceKind.HELD_CALLS:
            calls = [api_call(call) for call in piece.calls]
            return wire.ApprovalRequestMessage(**common, tool_call=calls[0], tool_calls=calls)
        case _:
            return _reasoning_message(piece, common)


def _reasoning_message(piece: Piece, common: dict[str, Any]) -> wire.ApiMessage:
    reasoning = [part for part in piece.parts if isinstance(part, Thinking)]
    if piece.kind is PieceKind.HIDDEN_REASONING:
        [part] = reasoning
        return wire.HiddenReasoningMessage(
            **common,
            state="redacted" if part.redacted else "omitted",
            hidden_reasoning=part.signature if part.redacted else None,
        )
    signatures = [part.signature for part in reasoning if part.signature]
    return wire.ReasoningMessage(
        **common,
        reasoning="".join(part.text for part in reasoning),
        signature=signatures[-1] if signatures else None,
    )


def _whole_message(row: Message, message_tool: AssistantMessageTool | None) -> wire.ApiMessage:
    match row.role:
        case Role.SYSTEM:
            return wire.SystemMessage(
                **_common_fields(row, row.otid), content=_as_text(row.content)
            )
        case Role.APPROVAL:
            return _approval_response(row)
        case Role.TOOL:
            return _tool_return(row, _visible_returns(row, message_tool))
        case _:
            return wire.UserMessage(
                **_common_fields(row, row.otid), content=_user_content(row.content)
            )


def _approval_response(row: Message) -> wire.ApiMessage:
    decided = next((item for item in row.decisions if item.returned is None), None)
    return wire.ApprovalResponseMessage(
        **_common_fields(row, row.otid),
        approvals=[api_decision(item) for item in row.decisions],
        approve=decided.approve if decided else None,
        approval_request_id=decided.call_id if decided else None,
        reason=decided.reason if decided else None,
    )


def _tool_return(row: Message, items: Sequence[ToolReturn]) -> wire.ApiMessage:
    first, returns = items[0], [_tool_return_entry(item) for item in items]
    common = _common_fields(row, derived_otid(row.id, 0))
    common["name"] = row.name or first.name
    return wire.ToolReturnMessage(
        **common,
        tool_return=_as_text(first.content),
        status=returns[0].status,
        tool_call_id=first.call_id,
        stdout=returns[0].stdout,
        stderr=returns[0].stderr,
        tool_returns=returns,
    )


def _listing_pieces(row: Message, message_tool: AssistantMessageTool) -> Sequence[Piece]:
    """The pieces of a row in a list: calls of the tool become text, and their returns are left out."""
    found: list[Piece] = []
    for piece in pieces(row):
        if piece.kind is PieceKind.TOOL_CALLS:
            texts = {call.id: _message_tool_text(call, message_tool) for call in piece.calls}
            found += [
                Piece(PieceKind.TEXT, (Text(text),)) for text in texts.values() if text is not None
            ]
            calls = tuple(call for call in piece.calls if texts[call.id] is None)
            found += [Piece(PieceKind.TOOL_CALLS, calls=calls)] if calls else []
        elif row.role is not Role.TOOL or _visible_returns(row, message_tool):
            found.append(piece)
    return found


def _visible_returns(
    row: Message, message_tool: AssistantMessageTool | None
) -> Sequence[ToolReturn]:
    return [
        item for item in row.tool_returns if message_tool is None or item.name != message_tool.tool
    ]


def _message_tool_text(call: ToolCall, message_tool: AssistantMessageTool) -> str | None:
    """The text for the user, if the call is one of the tool."""
    if call.name != message_tool.tool:
        return None
    try:
        arguments = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return None
    text = arguments.get(message_tool.argument) if isinstance(arguments, dict) else None
    return text if isinstance(text, str) else None


def api_call(call: ToolCall) -> wire.ToolCall:
    return wire.ToolCall(name=call.name, arguments=call.arguments, tool_call_id=call.id)


def _tool_return_entry(item: ToolReturn) -> wire.ToolReturn:
    has_images = any(isinstance(part, Image) for part in item.content)
    status: Literal["success", "error"] = "success" if item.ok else "error"
    return wire.ToolReturn(
        tool_return=_as_parts(item.content) if has_images else _as_text(item.content),
        status=status,
        tool_call_id=item.call_id,
        stdout=list(item.stdout),
        stderr=list(item.stderr),
    )


def api_decision(item: Decision) -> wire.ApprovalReturn | wire.ToolReturn:
    who: dict[str, Any] = {
        "decided_by_id": item.decided_by_id or UNSET,
        "decided_by": item.decided_by or UNSET,
        "decided_at": item.decided_at or UNSET,
    }
    if item.returned is not None:
        return replace(_tool_return_entry(item.returned), **who)
    return wire.ApprovalReturn(
        tool_call_id=item.call_id,
        approve=item.approve,
        reason=item.reason,
        arguments=UNSET if item.arguments is None else item.arguments,
        **who,
    )


class _PackedUserMessage(Struct):
    """How V1 stored a user's text. Rows that were imported from V1 still have it."""

    type: Literal["user_message"]
    message: str


def _user_content(content: Sequence[Part]) -> wire.Content:
    match content:
        case ():
            return ""
        case (Text(text=text),):
            return _unpack_user_message(text)
        case _:
            return _as_parts(content)


def _unpack_user_message(text: str) -> str:
    if not (text.startswith("{") and '"user_message"' in text):
        return text
    try:
        return msgspec.json.decode(text, type=_PackedUserMessage).message
    except msgspec.DecodeError:
        return text


def _as_parts(content: Sequence[Part]) -> list[wire.TextContent | wire.ImageContent]:
    parts: list[wire.TextContent | wire.ImageContent] = []
    for part in content:
        if isinstance(part, Text):
            parts.append(wire.TextContent(text=part.text))
        elif isinstance(part, Image):
            source = wire.Base64Image(
                media_type=part.media_type, data=part.data, detail=part.detail
            )
            parts.append(wire.ImageContent(source=source))
    return parts


def _part_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else "[Image omitted]"


def _as_text(content: Sequence[Part]) -> str:
    """Content where V1 has only text (wire-v1 §3.8)."""
    texts = [part.text for part in content if isinstance(part, Text)]
    images = sum(isinstance(part, Image) for part in content)
    if images:
        texts.append("[Image omitted]" if images == 1 else f"[{images} images omitted]")
    return "\n".join(texts)
