"""Reads streams of OpenAI's chat completions with as little work per token as possible.

The SDK builds a pydantic object from every token (0.15 ms). pydantic-ai reads few fields of a chunk: so here a
chunk is a small struct.
"""

from collections.abc import AsyncIterator, Hashable, Mapping
from typing import Any, ClassVar

import msgspec
from openai import APIError, AsyncStream

from holdfast.adapters.models.pydantic_ai.wires.sse_reader import (
    Addition,
    merge_additions,
    read_events,
    with_excerpt,
)

_DONE = b"[DONE]"
_TEXTS = ("content", "reasoning", "reasoning_content")
_STREAM_CUT_OFF = "The provider's stream ended in the middle of the answer."


class CalledFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: CalledFunction | None = None
    extra_content: Any = None

    @property
    def model_extra(self) -> dict[str, Any] | None:
        """pydantic-ai looks for Gemini's signatures under this name."""
        return {"extra_content": self.extra_content} if self.extra_content else None


class Delta(msgspec.Struct):
    content: Any = None
    tool_calls: list[CallPiece] | None = None
    refusal: str | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    annotations: Any = None


class Choice(msgspec.Struct):
    delta: Delta | None = None
    finish_reason: str | None = None
    # Never requested, but pydantic-ai reads the attribute.
    logprobs: ClassVar[None] = None


class ChunkUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: dict[str, Any] | None = None
    completion_tokens_details: dict[str, Any] | None = None


class Chunk(msgspec.Struct):
    """What pydantic-ai reads of a ``chat.completion.chunk``, as loosely as compatible servers write it."""

    id: str | None = None
    created: float | None = None
    model: str | None = None
    choices: list[Choice] | None = None
    usage: ChunkUsage | None = None
    service_tier: str | None = None
    error: Any = None
    moderation: ClassVar[None] = None


_decoder = msgspec.json.Decoder(Chunk)


class ChunkStream(AsyncStream[Any]):
    """The SDK's stream, read by our own code."""

    async def __stream__(self) -> AsyncIterator[Any]:
        complete = False
        try:
            async for events in read_events(self.response):
                try:
                    chunks = [_decoder.decode(data) for data in events if data[:6] != _DONE]
                except msgspec.DecodeError as error:
                    raise with_excerpt(events, error) from None
                complete = complete or len(chunks) < len(events)
                for chunk in merge_additions(chunks, _addition, _with_text):
                    if chunk.error:
                        raise self._to_api_error(chunk.error)
                    complete = complete or _is_last(chunk)
                    yield chunk
        finally:
            await self.response.aclose()
        if not complete:
            raise APIError(_STREAM_CUT_OFF, self.response.request, body=None)

    def _to_api_error(self, error: object) -> APIError:
        message = error.get("message") if isinstance(error, Mapping) else error
        return APIError(str(message), self.response.request, body=error)


def _is_last(chunk: Chunk) -> bool:
    return bool(chunk.choices and chunk.choices[0].finish_reason)


def _addition(chunk: Chunk) -> Addition:
    if chunk.usage is not None or chunk.error or not chunk.choices or len(chunk.choices) > 1:
        return None
    choice = chunk.choices[0]
    delta = choice.delta
    if delta is None or choice.finish_reason or delta.refusal or delta.annotations:
        return None
    return _delta_addition(delta)


def _delta_addition(delta: Delta) -> Addition:
    """What a delta adds, if it adds to one thing only."""
    texts: list[tuple[Hashable, str]] = [
        (name, text) for name in _TEXTS if (text := getattr(delta, name))
    ]
    calls = [(call.index, _added_arguments(call)) for call in delta.tool_calls or ()]
    match texts + calls:
        case [(str() as name, str() as text)] if _is_mergeable(text):
            return name, text
        case [(int() as index, str() as arguments)] if arguments:
            return index, arguments
        case _:
            return None


def _added_arguments(call: CallPiece) -> str:
    """Empty if the piece is the beginning of a call."""
    function = call.function
    if call.id or call.extra_content or function is None or function.name:
        return ""
    return function.arguments if isinstance(function.arguments, str) else ""


def _is_mergeable(text: str) -> bool:
    """pydantic-ai gives a meaning to chunks that are a tag (bounds of thinking) or blank (ignored before text)."""
    return not (text.isspace() or (text[0] == "<" and text[-1] == ">"))


def _with_text(chunk: Chunk, text: str) -> Chunk:
    """The chunk with the merged text; it adds to one thing only."""
    for choice in chunk.choices or ():
        delta = choice.delta
        for call in (delta and delta.tool_calls) or ():
            call.function = CalledFunction(arguments=text)
        for name in _TEXTS:
            if getattr(delta, name, None):
                setattr(delta, name, text)
    return chunk
