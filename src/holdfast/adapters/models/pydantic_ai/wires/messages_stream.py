"""A client for Anthropic's messages that reads streams with as little work per token as possible.

The SDK finds the type of each event and builds validated objects (0.05 ms). Most events add text to a block: those are
parsed here and built without validation. All others, and everything else, are left to the SDK.
"""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import msgspec
from anthropic import AsyncAnthropic, AsyncStream
from anthropic.types.beta import (
    BetaInputJSONDelta,
    BetaRawContentBlockDeltaEvent,
    BetaRawMessageStreamEvent,
    BetaTextDelta,
    BetaThinkingDelta,
)

from holdfast.adapters.models.pydantic_ai.wires.sdk_events import build_unchecked
from holdfast.adapters.models.pydantic_ai.wires.sse_reader import (
    Addition,
    merge_additions,
    read_events,
    with_excerpt,
)


class Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class Event(msgspec.Struct):
    """The fields that tell whether an event adds text, to which block, and which text."""

    type: str = ""
    index: int = 0
    delta: Delta | None = None


_RawEvent: TypeAlias = tuple[Event, bytes]

_decoder = msgspec.json.Decoder(Event)

# The types of deltas that add text: the class, and the field with the text.
_TEXT_DELTAS: dict[str, tuple[type[Any], str]] = {
    "text_delta": (BetaTextDelta, "text"),
    "thinking_delta": (BetaThinkingDelta, "thinking"),
    "input_json_delta": (BetaInputJSONDelta, "partial_json"),
}


class MessageStream(AsyncStream[BetaRawMessageStreamEvent]):
    """The SDK's stream, read by our own code."""

    async def __stream__(self) -> AsyncIterator[BetaRawMessageStreamEvent]:
        try:
            async for events in read_events(self.response):
                try:
                    arrived = [(_decoder.decode(data), data) for data in events]
                except msgspec.DecodeError as error:
                    raise with_excerpt(events, error) from None
                for event, data in merge_additions(arrived, _addition, _with_text):
                    if event.delta is not None and event.delta.type in _TEXT_DELTAS:
                        yield _text_event(event, event.delta)
                    elif event.type != "ping":
                        yield self._parse_event(event, data)
        finally:
            await self.response.aclose()

    def _parse_event(self, event: Event, data: bytes) -> Any:
        """The event as the SDK parses it."""
        content = msgspec.json.decode(data)
        if event.type == "error":
            raise self._client._make_status_error(  # noqa: SLF001 - as the SDK's own stream does
                data.decode(), body=content, response=self.response
            )
        return self._client._process_response_data(  # noqa: SLF001 - as the SDK's own stream does
            data=content, cast_to=self._cast_to, response=self.response
        )


class DirectAnthropic(AsyncAnthropic):
    """An Anthropic client that reads its streams with ``MessageStream``."""

    async def post(self, path: str, **request: Any) -> Any:
        if request.get("stream"):
            request["stream_cls"] = MessageStream
        return await super().post(path, **request)


def _addition(arrived: _RawEvent) -> Addition:
    event = arrived[0]
    delta = event.delta
    if delta is None or delta.type not in _TEXT_DELTAS:
        return None
    return (event.index, delta.type), getattr(delta, _TEXT_DELTAS[delta.type][1])


def _with_text(arrived: _RawEvent, text: str) -> _RawEvent:
    event, data = arrived
    if event.delta is not None:
        setattr(event.delta, _TEXT_DELTAS[event.delta.type][1], text)
    return event, data


def _text_event(event: Event, delta: Delta) -> BetaRawContentBlockDeltaEvent:
    kind, name = _TEXT_DELTAS[delta.type]
    words: Any = build_unchecked(kind, type=delta.type, **{name: getattr(delta, name)})
    return build_unchecked(
        BetaRawContentBlockDeltaEvent, type=event.type, index=event.index, delta=words
    )
