"""Streams of OpenAI's responses, read with no more work per token than is needed.

The SDK finds out what each event may be and builds checked objects of it. Most events add words to an item:
those are read here and made without checks. All others are the SDK's.
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

from holdfast.adapters.models.wires.arrivals import Addition, arrivals, garbled, merged
from holdfast.adapters.models.wires.sdk_events import made


class Event(msgspec.Struct):
    """As much of an event as tells whether it adds words, to what, and which words."""

    type: str = ""
    item_id: str = ""
    content_index: int = 0
    summary_index: int = 0
    sequence_number: int = 0
    delta: Any = None
    error: Any = None

    @property
    def adds_words(self) -> bool:
        return self.type in _WORDS and isinstance(self.delta, str)


_Arrived: TypeAlias = tuple[Event, bytes]

_decoder = msgspec.json.Decoder(Event)

_WORDS: dict[str, type[Any]] = {
    "response.output_text.delta": ResponseTextDeltaEvent,
    "response.reasoning_summary_text.delta": ResponseReasoningSummaryTextDeltaEvent,
    "response.function_call_arguments.delta": ResponseFunctionCallArgumentsDeltaEvent,
}


class ResponseStream(AsyncStream[ResponseStreamEvent]):
    """The SDK's stream with another way to read it."""

    @classmethod
    def over(cls, response: httpx2.Response, client: AsyncOpenAI) -> Self:
        # The type that the SDK takes from the class's own argument.
        kind = cast("type[ResponseStreamEvent]", ResponseStreamEvent)
        return cls(cast_to=kind, response=response, client=client)

    async def __stream__(self) -> AsyncIterator[ResponseStreamEvent]:
        try:
            async for events in arrivals(self.response):
                try:
                    arrived = [(_decoder.decode(data), data) for data in events if data[:1] == b"{"]
                except msgspec.DecodeError as error:
                    raise garbled(events, error) from None
                for event, data in merged(arrived, _addition, _grown):
                    if event.adds_words:
                        yield _words(event)
                    else:
                        yield self._anything(event, data)
        finally:
            await self.response.aclose()

    def _anything(self, event: Event, data: bytes) -> Any:
        """What the SDK makes of the event."""
        if event.error:
            message = event.error.get("message") if isinstance(event.error, dict) else event.error
            raise APIError(str(message), self.response.request, body=event.error)
        return self._client._process_response_data(  # noqa: SLF001 - as the SDK's own stream does
            data=msgspec.json.decode(data), cast_to=self._cast_to, response=self.response
        )


def _addition(arrived: _Arrived) -> Addition:
    event = arrived[0]
    if not event.adds_words:
        return None
    return (event.type, event.item_id, event.content_index, event.summary_index), event.delta


def _grown(arrived: _Arrived, text: str) -> _Arrived:
    event, data = arrived
    event.delta = text
    return event, data


def _words(event: Event) -> Any:
    return made(
        _WORDS[event.type],
        type=event.type,
        item_id=event.item_id,
        content_index=event.content_index,
        summary_index=event.summary_index,
        sequence_number=event.sequence_number,
        delta=event.delta,
    )
