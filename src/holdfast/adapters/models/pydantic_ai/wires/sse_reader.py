"""Server-sent events as they arrive: what came together is handed on together, and its words as one.

So a token costs less the more of them there are. Nothing waits: what is merged was there already.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import httpx2
import msgspec

E = TypeVar("E")

# So much of an answer that makes no sense is told to the operator.
_EXCERPT_BYTES = 500

# To what an event adds, and what it adds. None: it is more than words, and stays as it is.
Addition: TypeAlias = tuple[Hashable, str] | None


async def read_events(response: httpx2.Response) -> AsyncGenerator[list[bytes], None]:
    """The data of the events of each read; comments and event names are of no use here."""
    rest = b""
    lines: list[bytes] = []
    # What came before the first event: if there is none, the provider said something else.
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
        raise msgspec.DecodeError(f"The provider's answer is no event stream: {_excerpt(before)}")


def with_excerpt(events: Sequence[bytes], error: msgspec.DecodeError) -> msgspec.DecodeError:
    """The error with what could not be read."""
    return msgspec.DecodeError(f"{error}: {_excerpt(b' '.join(events))}")


def _excerpt(data: bytes) -> str:
    return data[:_EXCERPT_BYTES].decode(errors="replace")


def _byte_stream(response: httpx2.Response) -> AsyncIterator[bytes]:
    if "content-encoding" in response.headers or not isinstance(
        response.stream, httpx2.AsyncByteStream
    ):
        return response.aiter_bytes()
    # Nothing to decode: two generators less on the way of each token.
    return aiter(response.stream)


def merge_additions(
    events: Sequence[E], addition: Callable[[E], Addition], with_text: Callable[[E, str], E]
) -> Iterator[E]:
    """The events, with neighbours that add to the same thing made one by ``grown(first, whole text)``."""
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
