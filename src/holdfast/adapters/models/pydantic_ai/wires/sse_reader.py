"""Reads server-sent events in the batches in which they arrive, and merges deltas of one batch.

So a token costs less the more arrive at once. Nothing is delayed: only what has arrived already is merged.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import httpx2
import msgspec

E = TypeVar("E")

# An unreadable answer is shown to the operator up to this length.
_EXCERPT_BYTES = 500

# What an event adds text to, and the text. None: the event is more than a text delta and is not merged.
Addition: TypeAlias = tuple[Hashable, str] | None


async def read_events(response: httpx2.Response) -> AsyncGenerator[list[bytes], None]:
    """The data of the events of each read. Comments and event names are skipped."""
    rest = b""
    lines: list[bytes] = []
    # What came before the first event, to show it if there is no event at all.
    before: bytes | None = b""
    async for received in _byte_stream(response):
        if before is not None and len(before) < _EXCERPT_BYTES:
            before += received
        *complete, rest = (rest + received).split(b"\n")
        events: list[bytes] = []
        for line in complete:
            if line.startswith(b"data:"):
                lines.append(line[5:].strip())
            elif lines and not line.strip():
                events.append(b"\n".join(lines))
                lines = []
        if events:
            before = None
            yield events
    if before:
        raise msgspec.DecodeError(
            f"The provider's answer is not an event stream: {_excerpt(before)}"
        )


def with_excerpt(events: Sequence[bytes], error: msgspec.DecodeError) -> msgspec.DecodeError:
    """The error with the beginning of the data that could not be decoded."""
    return msgspec.DecodeError(f"{error}: {_excerpt(b' '.join(events))}")


def _excerpt(data: bytes) -> str:
    return data[:_EXCERPT_BYTES].decode(errors="replace")


def _byte_stream(response: httpx2.Response) -> AsyncIterator[bytes]:
    if "content-encoding" in response.headers or not isinstance(
        response.stream, httpx2.AsyncByteStream
    ):
        return response.aiter_bytes()
    # There is nothing to decode: two generators less per token.
    return aiter(response.stream)


def merge_additions(
    events: Sequence[E], addition: Callable[[E], Addition], with_text: Callable[[E, str], E]
) -> Iterator[E]:
    """The events; neighbours that add to the same thing become one: ``with_text(first, merged text)``."""
    if len(events) == 1:
        yield events[0]
        return
    first: E | None = None
    target: Hashable = None
    texts: list[str] = []
    for event in events:
        added = addition(event)
        if first is not None and added is not None and added[0] == target:
            texts.append(added[1])
            continue
        if first is not None:
            yield first if len(texts) == 1 else with_text(first, "".join(texts))
            first = None
        if added is None:
            yield event
        else:
            first, target, texts = event, added[0], [added[1]]
    if first is not None:
        yield first if len(texts) == 1 else with_text(first, "".join(texts))
