"""What passes between a session of the SDK and its transport, watched: whether the server still says something, which request
a task has sent, and how much the server asks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, Self

import anyio
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from holdfast.adapters.mcp.failures import TransportFailed

# How many requests of the server may wait for their answers, and how long it may read none of these then. Each is a task.
_MAX_OWED_ANSWERS: Final = 100
_OWED_SECONDS: Final = 5.0

_CLOSED = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)


class Watcher(Protocol):
    def mark_lost(self) -> None:
        """There will be no more messages."""

    def note_end(self, why: str) -> None:
        """Why there will be none."""

    def note_message(self) -> None:
        """The server has said something."""


class Sending:
    """What is known of the last request of a task: the SDK makes up the id, and hides whether it was sent."""

    def __init__(self) -> None:
        self.request_id: str | int | None = None
        self.was_sent = False


_sending: ContextVar[Sending | None] = ContextVar("sending", default=None)


@contextmanager
def watch_sending() -> Iterator[Sending]:
    sending = Sending()
    token = _sending.set(sending)
    try:
        yield sending
    finally:
        _sending.reset(token)


@asynccontextmanager
async def watch_streams(
    opened: AbstractAsyncContextManager[TransportStreams], watcher: Watcher
) -> AsyncIterator[TransportStreams]:
    async with opened as (read, write):
        owed = _OwedAnswers()
        yield _WatchedReader(read, watcher, owed), _WatchedWriter(write, owed)


class _OwedAnswers:
    """The requests of the server that have no answer yet. Several may have the same id."""

    def __init__(self) -> None:
        self._counts: Counter[str | int] = Counter()
        self._fell = asyncio.Event()

    def note(self, message: JSONRPCMessage) -> None:
        """The server has sent this."""
        if isinstance(message, JSONRPCRequest):
            self._counts[message.id] += 1
        elif (
            isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        ):
            # It gets no answer then.
            self.settle((message.params or {}).get("requestId"))

    def settle(self, request_id: Any) -> None:
        if isinstance(request_id, str | int) and request_id in self._counts:
            self._counts -= Counter([request_id])
            self._fell.set()

    async def wait_until_few(self) -> None:
        """TimeoutError if the server does not take its answers."""
        while self._counts.total() > _MAX_OWED_ANSWERS:
            self._fell.clear()
            async with asyncio.timeout(_OWED_SECONDS):
                await self._fell.wait()


class _WatchedReader:
    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        watcher: Watcher,
        owed: _OwedAnswers,
    ) -> None:
        self._inner = inner
        self._watcher = watcher
        self._owed = owed

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            await self._owed.wait_until_few()
            item = await self._inner.receive()
        except TimeoutError:
            self._watcher.note_end("the server asks, and does not read the answers")
            self._watcher.mark_lost()
            raise anyio.EndOfStream from None
        except _CLOSED:
            self._watcher.mark_lost()
            raise
        if isinstance(item, TransportFailed):
            self._watcher.note_end(str(item))
        elif isinstance(item, SessionMessage):
            self._watcher.note_message()
            self._owed.note(item.message)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> "_WatchedReader":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _WatchedWriter:
    def __init__(self, inner: WriteStream[SessionMessage], owed: _OwedAnswers) -> None:
        self._inner = inner
        self._owed = owed

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            await self._inner.send(item)
            self._owed.settle(item.message.id)
        elif isinstance(item.message, JSONRPCRequest):
            await self._send_request(item, item.message.id)
        else:
            await self._inner.send(item)

    async def _send_request(self, item: SessionMessage, request_id: str | int) -> None:
        sending = _sending.get() or Sending()
        sending.request_id = request_id
        sending.was_sent = True
        try:
            await self._inner.send(item)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            sending.was_sent = False
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
