"""Reads streams of OpenAI's responses with as little work per token as possible.

The SDK finds the type of each event and builds validated objects. Most events add text to an item: those are parsed
here and built without validation. All others are left to the SDK.
"""

from collections.abc import AsyncIterator
from typing import Any, Self, TypeAlias, cast

import httpx2
import msgspec
from openai import APIError, AsyncOpenAI, AsyncStream
from openai.types.responses import (
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

from holdfast.adapters.models.pydantic_ai.wires.sdk_events import build_unchecked
from holdfast.adapters.models.pydantic_ai.wires.sse_reader import (
    Addition,
    merge_additions,
    read_events,
    with_excerpt,
)


class Event(msgspec.Struct):
    """The fields that tell whether an event adds text, to what, and which text."""

    type: str = ""
    item_id: str = ""
    content_index: int = 0
    summary_index: int = 0
    sequence_number: int = 0
    delta: Any = None
    error: Any = None

    @property
    def adds_text(self) -> bool:
        return self.type in _TEXT_DELTAS and isinstance(self.delta, str)


_RawEvent: TypeAlias = tuple[Event, bytes]

_decoder = msgspec.json.Decoder(Event)

_TEXT_DELTAS: dict[str, type[Any]] = {
    "response.output_text.delta": ResponseTextDeltaEvent,
    "response.reasoning_summary_text.delta": ResponseReasoningSummaryTextDeltaEvent,
    "response.function_call_arguments.delta": ResponseFunctionCallArgumentsDeltaEvent,
}


class ResponseStream(AsyncStream[ResponseStreamEvent]):
    """The SDK's stream, read by our own code."""

    @classmethod
    def from_response(cls, response: httpx2.Response, client: AsyncOpenAI) -> Self:
        # The type that the SDK passes itself.
        kind = cast("type[ResponseStreamEvent]", ResponseStreamEvent)
        return cls(cast_to=kind, response=response, client=client)

    async def __stream__(self) -> AsyncIterator[ResponseStreamEvent]:
        try:
            async for events in read_events(self.response):
                try:
                    arrived = [(_decoder.decode(data), data) for data in events if data[:1] == b"{"]
                except msgspec.DecodeError as error:
                    raise with_excerpt(events, error) from None
                for event, data in merge_additions(arrived, _addition, _with_text):
                    if event.adds_text:
                        yield _text_event(event)
                    else:
                        yield self._parse_event(event, data)
        finally:
            await self.response.aclose()

    def _parse_event(self, event: Event, data: bytes) -> Any:
        """The event as the SDK parses it."""
        if event.error:
            message = event.error.get("message") if isinstance(event.error, dict) else event.error
            raise APIError(str(message), self.response.request, body=event.error)
        return self._client._process_response_data(  # noqa: SLF001 - as the SDK's own stream does
            data=msgspec.json.decode(data), cast_to=self._cast_to, response=self.response
        )


def _addition(arrived: _RawEvent) -> Addition:
    event = arrived[0]
    if not event.adds_text:
        return None
    return (event.type, event.item_id, event.content_index, event.summary_index), event.delta


def _with_text(arrived: _RawEvent, text: str) -> _RawEvent:
    event, data = arrived
    event.delta = text
    return event, data


def _text_event(event: Event) -> Any:
    return build_unchecked(
        _TEXT_DELTAS[event.type],
        type=event.type,
        item_id=event.item_id,
        content_index=event.content_index,
        summary_index=event.summary_index,
        sequence_number=event.sequence_number,
        delta=event.delta,
    )
