"""Converts pydantic-ai's stream to our events: deltas as they come, then the whole answer."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from holdfast.adapters.models.pydantic_ai.call_ids import is_usable
from holdfast.adapters.models.pydantic_ai.errors import (
    NO_SDK_FAILURES,
    SdkFailures,
    translate_errors,
)
from holdfast.adapters.models.pydantic_ai.part_order import with_position
from holdfast.adapters.models.pydantic_ai.stream_events import read_stream_events
from holdfast.core.messages import Message, Part, Text, Thinking, ToolCall
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.errors import ModelError
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)

_STREAM_CUT_OFF = "The provider's stream ended in the middle of the answer."

# pydantic-ai marks the ids that it generates.
_GENERATED_ID_PREFIX = "pyd_ai_"
_REDACTED_IDS = ("redacted_thinking", "redacted_content")

_NO_ARGUMENTS = "{}"

# Each count has one of these names in the details, if the provider reported it.
_CACHE_READ = ("cached_tokens", "cache_read_input_tokens", "cached_content_tokens")
_CACHE_WRITE = ("cache_write_tokens", "cache_creation_input_tokens")
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")


async def answer_events(
    stream: StreamedResponse,
    history: tuple[Message, ...],
    secrets: tuple[str, ...],
    failures: SdkFailures = NO_SDK_FAILURES,
) -> AsyncGenerator[ModelEvent, None]:
    """The deltas of the stream, then the answer. No call gets an id that the history has.

    Events follow the parts of the answer in order; thinking without text becomes a HiddenThinking.
    """
    calls = _CallIds(history)
    thinking = _HiddenThinkingTracker()
    usage = _UsageTracker(stream)
    with translate_errors(secrets, failures, reading=True):
        async for event in read_stream_events(stream):
            if isinstance(event, PartDeltaEvent):
                model_event = _on_part_delta(event, calls, thinking)
            elif isinstance(event, PartStartEvent):
                hidden = thinking.finish(event.index)
                if hidden is not None:
                    yield hidden
                model_event = _on_part_start(event, calls, thinking)
            else:
                continue
            update = usage.take_update()
            if update is not None:
                yield update
            if model_event is not None:
                yield model_event
    for last in (thinking.finish(None), *calls.close_empty()):
        if last is not None:
            yield last
    response = stream.get()
    refusal = _refusal(response)
    if refusal is not None:
        yield TextDelta(refusal.text)
    yield _answer(response, calls, refusal)


class _UsageTracker:
    """Reports the provider's token counts when they change."""

    def __init__(self, stream: StreamedResponse) -> None:
        self._stream = stream
        self._seen = stream.usage
        self._reported = Usage()

    def take_update(self) -> UsageUpdate | None:
        # pydantic-ai replaces the object at each count, so this comparison is enough.
        if self._stream.usage is self._seen:
            return None
        self._seen = self._stream.usage
        before, self._reported = self._reported, _usage(self._seen)
        return None if self._reported == before else UsageUpdate(self._reported)


class _CallIds:
    """The ids of this answer's calls, by the index of their part."""

    def __init__(self, history: tuple[Message, ...]) -> None:
        self._history = history
        self._given: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._without_arguments: set[int] = set()

    def id(self, index: int, proposed: str) -> str:
        """The provider's id, or a new one if it gave none, an unusable one, or one that was used before."""
        if index not in self._given:
            usable = is_usable(proposed) and not proposed.startswith(_GENERATED_ID_PREFIX)
            taken = not usable or proposed in self._given.values() or self._was_used(proposed)
            self._given[index] = f"call_{token_hex(4)}" if taken else proposed
        return self._given[index]

    def start(self, index: int, part: ToolCallPart) -> ToolCallDelta:
        self._names[index] = part.tool_name
        self._without_arguments.add(index)
        return self.add(index, part.tool_call_id, _json_text(part.args))

    def add(self, index: int, proposed: str, arguments: str) -> ToolCallDelta:
        if arguments:
            self._without_arguments.discard(index)
        return ToolCallDelta(self.id(index, proposed), self._names[index], arguments)

    def close_empty(self) -> Iterator[ToolCallDelta]:
        """A delta with empty arguments for each call that got none."""
        for index in sorted(self._without_arguments):
            yield ToolCallDelta(self._given[index], self._names[index], _NO_ARGUMENTS)

    def _was_used(self, call_id: str) -> bool:
        return any(call.id == call_id for row in self._history for call in row.tool_calls)


class _HiddenThinkingTracker:
    """Tracks thinking that has begun without text. Whether it stays without is known when the next part begins."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._has_hidden_data = False

    def start(self, index: int, part: ThinkingPart) -> ModelEvent | None:
        if part.id in _REDACTED_IDS:
            return HiddenThinking(redacted=True, data=part.signature)
        if part.content:
            return ThinkingDelta(part.content)
        self._index = index
        self._has_hidden_data = _has_content(part)
        return None

    def add(self, index: int, delta: ThinkingPartDelta) -> ModelEvent | None:
        if index == self._index:
            if delta.content_delta:
                self._index = None
            self._has_hidden_data |= bool(delta.signature_delta or delta.provider_details)
        return ThinkingDelta(delta.content_delta) if delta.content_delta else None

    def finish(self, next_index: int | None) -> ModelEvent | None:
        index, self._index = self._index, None
        if index is None or index == next_index or not self._has_hidden_data:
            return None
        return HiddenThinking(redacted=False)


def _on_part_start(
    event: PartStartEvent, calls: _CallIds, thinking: _HiddenThinkingTracker
) -> ModelEvent | None:
    part = event.part
    if isinstance(part, TextPart):
        return TextDelta(part.content) if part.content else None
    if isinstance(part, ThinkingPart):
        return thinking.start(event.index, part)
    if isinstance(part, ToolCallPart):
        return calls.start(event.index, part)
    return None


def _on_part_delta(
    event: PartDeltaEvent, calls: _CallIds, thinking: _HiddenThinkingTracker
) -> ModelEvent | None:
    delta = event.delta
    if isinstance(delta, TextPartDelta):
        return TextDelta(delta.content_delta) if delta.content_delta else None
    if isinstance(delta, ThinkingPartDelta):
        return thinking.add(event.index, delta)
    if isinstance(delta, ToolCallPartDelta) and delta.args_delta:
        return calls.add(event.index, delta.tool_call_id or "", _json_text(delta.args_delta))
    return None


def _answer(response: ModelResponse, calls: _CallIds, refusal: Text | None) -> Answer:
    content = tuple(_content_parts(response.parts))
    if refusal is not None:
        content = (*content, refusal)
    tool_calls = tuple(
        _tool_call(part, calls.id(index, part.tool_call_id))
        for index, part in enumerate(response.parts)
        if isinstance(part, ToolCallPart)
    )
    return Answer(
        content=content,
        tool_calls=tool_calls,
        usage=_usage(response.usage),
        finish=_finish(response, called=bool(tool_calls)),
    )


def _content_parts(parts: Sequence[ModelResponsePart]) -> Iterator[Part]:
    calls = 0
    for part in parts:
        if isinstance(part, TextPart) and part.content:
            yield Text(part.content, part.id, part.provider_name, with_position(part, calls))
        elif isinstance(part, ThinkingPart) and _has_content(part):
            yield Thinking(
                part.content,
                signature=part.signature,
                id=part.id,
                provider=part.provider_name,
                details=with_position(part, calls),
                redacted=part.id in _REDACTED_IDS,
            )
        calls += isinstance(part, ToolCallPart)


def _has_content(part: ThinkingPart) -> bool:
    """Whether the thinking has text, or anything that must be sent back to the provider."""
    return bool(part.content or part.signature or part.provider_details)


def _tool_call(part: ToolCallPart, call_id: str) -> ToolCall:
    return ToolCall(
        id=call_id,
        name=part.tool_name,
        arguments=_json_text(part.args) or _NO_ARGUMENTS,
        item_id=part.id,
        provider=part.provider_name,
        details=part.provider_details,
    )


def _json_text(arguments: str | Mapping[str, Any] | None) -> str:
    if isinstance(arguments, Mapping):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""


def _finish(response: ModelResponse, *, called: bool) -> Finish:
    if response.finish_reason is None and not (response.provider_details or {}).get(
        "finish_reason"
    ):
        raise ModelError(_STREAM_CUT_OFF, transient=True)
    if response.finish_reason == "length":
        return Finish.LENGTH
    # Some providers end a forced call with "stop".
    return Finish.TOOL_CALLS if called else Finish.STOP


def _refusal(response: ModelResponse) -> Text | None:
    """The text of a refusal, which providers send beside the content."""
    text = (response.provider_details or {}).get("refusal")
    return Text(text) if isinstance(text, str) and text and not response.parts else None


def _usage(counted: RequestUsage) -> Usage:
    details = counted.details
    return Usage(
        prompt_tokens=counted.input_tokens,
        completion_tokens=counted.output_tokens,
        cached_input_tokens=_reported_count(details, _CACHE_READ, counted.cache_read_tokens),
        cache_write_tokens=_reported_count(details, _CACHE_WRITE, counted.cache_write_tokens),
        reasoning_tokens=_reported_count(details, _REASONING, 0),
    )


def _reported_count(details: dict[str, int], names: tuple[str, ...], counted: int) -> int | None:
    """None if the provider did not report it, which is not the same as 0."""
    return next((details[name] for name in names if name in details), counted or None)
