"""Converts the rows of a thread to pydantic-ai's messages. Pure.

The rows are valid already (every call has its result); here they get a shape that every provider accepts.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from holdfast.adapters.models.pydantic_ai.call_ids import to_usable_id
from holdfast.adapters.models.pydantic_ai.part_order import restore_order
from holdfast.core.messages import (
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    VisiblePart,
)

AnyPart = TypeVar("AnyPart", bound=Part)

# Providers refuse a conversation that does not begin with the user, and blank text.
_FIRST_USER_TEXT = "(The conversation begins.)"
_BLANK_TEXT = "(no text)"
# A result that does not match the arguments which the model sent would mislead it.
_EDITED_ARGUMENTS = "[A person changed the arguments of this call before it ran, to: {}]"


def to_messages(
    rows: Sequence[Message], is_own: Callable[[Thinking], bool], *, supports_images: bool = True
) -> list[ModelMessage]:
    """The history as it is sent: without thinking that came over another wire, and without images if the model does
    not accept them."""
    messages: list[ModelMessage] = []
    step_id: str | None = None
    results = _ResultParts(rows)
    for row in rows:
        if row.role is Role.APPROVAL and not row.tool_calls:
            # A person's decision: the model gets the result of the call, not who allowed it.
            continue
        if row.role in (Role.ASSISTANT, Role.APPROVAL):
            _add_answer(
                messages, row, is_own, same=row.step_id is not None and row.step_id == step_id
            )
            step_id = row.step_id
        else:
            shown = row if supports_images else without_images(row)
            _add_request(
                messages, [*map(results.build, shown.tool_returns)] or [_request_part(shown)]
            )
    return _start_with_user(_without_trailing_thinking(messages))


def _add_answer(
    messages: list[ModelMessage], row: Message, is_own: Callable[[Thinking], bool], *, same: bool
) -> None:
    """One answer may be stored as two rows, the second with the calls that were held (wire-v1 §6.2)."""
    parts = list(_answer_parts(row, is_own))
    if same and isinstance(messages[-1], ModelResponse):
        messages[-1].parts = [*messages[-1].parts, *parts]
    elif parts:
        messages.append(ModelResponse(parts=parts))


def _answer_parts(row: Message, is_own: Callable[[Thinking], bool]) -> Iterator[ModelResponsePart]:
    parts = [sent for part in row.content if (sent := _answer_part(part, is_own)) is not None]
    return restore_order(parts, [_call_part(call) for call in row.tool_calls])


def _answer_part(part: Part, is_own: Callable[[Thinking], bool]) -> TextPart | ThinkingPart | None:
    match part:
        case Text(text=text) if text.strip():
            return TextPart(
                content=text,
                id=part.id,
                provider_name=part.provider,
                provider_details=part.details,
            )
        case Thinking() if is_own(part):
            return ThinkingPart(
                content=part.text,
                id=part.id,
                signature=part.signature,
                provider_name=part.provider,
                provider_details=part.details,
            )
        case _:
            return None


def _call_part(call: ToolCall) -> ToolCallPart:
    return ToolCallPart(
        tool_name=call.name,
        args=call.arguments,
        tool_call_id=to_usable_id(call.id),
        id=call.item_id,
        provider_name=call.provider,
        provider_details=call.details,
    )


def _add_request(messages: list[ModelMessage], parts: Sequence[ModelRequestPart]) -> None:
    """Everything between two answers is one request: Anthropic wants all results in one message."""
    last = messages[-1] if messages else None
    if isinstance(last, ModelRequest):
        last.parts = [*last.parts, *parts]
    else:
        messages.append(ModelRequest(parts=parts))


def _request_part(row: Message) -> ModelRequestPart:
    if row.role is Role.SYSTEM:
        return SystemPromptPart(content=row.text)
    return UserPromptPart(content=_user_content(row.content))


def without_images(row: Message) -> Message:
    """The row with a note in place of its images (wire-v1 §3.8)."""
    returns = tuple(
        replace(item, content=_replace_images(item.content)) for item in row.tool_returns
    )
    return replace(row, content=_replace_images(row.content), tool_returns=returns)


def _replace_images(parts: Sequence[AnyPart]) -> tuple[AnyPart | Text, ...]:
    images = sum(isinstance(part, Image) for part in parts)
    others = tuple(part for part in parts if not isinstance(part, Image))
    if not images:
        return others
    note = "[Image omitted]" if images == 1 else f"[{images} images omitted]"
    return (*others, Text(note))


def _user_content(parts: Sequence[Part]) -> str | list[UserContent]:
    visible = [part for part in parts if isinstance(part, Text | Image)]
    contents = _user_contents(visible)
    match contents:
        case []:
            return _BLANK_TEXT
        case [str() as text]:
            return text
        case _:
            return contents


class _ResultParts:
    """Builds the parts of tool results, with the tool's name, which some providers require, and the arguments that the
    tool really got if a person changed them."""

    def __init__(self, rows: Sequence[Message]) -> None:
        self._names = {call.id: call.name for row in rows for call in row.tool_calls}
        self._edited = {
            decision.call_id: decision.arguments
            for row in rows
            for decision in row.decisions
            if decision.arguments is not None
        }

    def build(self, item: ToolReturn) -> ToolReturnPart:
        content = item.content
        if (arguments := self._edited.get(item.call_id)) is not None:
            given = json.dumps(arguments, ensure_ascii=False)
            content = (Text(_EDITED_ARGUMENTS.format(given)), *content)
        has_images = any(isinstance(part, Image) for part in content)
        texts = (part.text for part in content if isinstance(part, Text))
        return ToolReturnPart(
            tool_name=item.name or self._names[item.call_id],
            content=_user_contents(content) if has_images else "\n".join(texts),
            tool_call_id=to_usable_id(item.call_id),
            outcome="success" if item.ok else "failed",
        )


def _user_contents(parts: Sequence[VisiblePart]) -> list[UserContent]:
    return [
        _binary_content(part) if isinstance(part, Image) else part.text
        for part in parts
        if isinstance(part, Image) or part.text.strip()
    ]


def _binary_content(image: Image) -> BinaryContent:
    return BinaryContent(
        data=b64decode(image.data),
        media_type=image.media_type,
        vendor_metadata={"detail": image.detail} if image.detail else None,
    )


def _without_trailing_thinking(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Without thinking at the end of an answer: providers refuse thinking that nothing follows."""
    for message in messages:
        if isinstance(message, ModelResponse):
            parts = list(message.parts)
            while parts and isinstance(parts[-1], ThinkingPart):
                parts.pop()
            message.parts = parts
    return [message for message in messages if message.parts]


def _start_with_user(messages: list[ModelMessage]) -> list[ModelMessage]:
    first = messages[0] if messages else None
    opening = UserPromptPart(content=_FIRST_USER_TEXT)
    if not isinstance(first, ModelRequest):
        return [ModelRequest(parts=[opening]), *messages]
    if all(isinstance(part, SystemPromptPart) for part in first.parts):
        first.parts = [*first.parts, opening]
    return messages
