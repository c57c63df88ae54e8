"""A request in progress over HTTP, from its POST to the end of its answer, and the limits of that answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx2

from holdfast.adapters.mcp.failures import Failure, Kind

# How long the end of a stream may take after the answer in it.
_DRAIN_SECONDS: Final = 0.5
# A server may end the stream of an answer and let it be asked for again: how long to wait at least, and how often.
_RESUME_SECONDS: Final = 0.5
_MAX_RESUMPTIONS: Final = 100


class CancelledUnsent(httpx2.TransportError):
    """The request was cancelled before it was sent."""


class Post:
    """A request in progress. It ends with the task of the SDK that makes it, which also asks for the rest of its answer."""

    def __init__(self, request_id: str | int) -> None:
        self.request_id = request_id
        self.is_cancelled = False
        self.is_sent = False
        self.ended = asyncio.Event()
        self.body: LimitedBody | None = None
        # What waits for the head of an answer.
        self._waiting: asyncio.Timeout | None = None
        self._resumptions = 0
        self._resumable_at = 0.0

    def check_before_sending(self) -> None:
        if self.is_cancelled:
            raise CancelledUnsent("The request was cancelled.")
        self.is_sent = True

    @asynccontextmanager
    async def wait_for_head(self) -> AsyncIterator[None]:
        """``abort`` ends what is done in it with a TimeoutError."""
        async with asyncio.timeout(None) as waiting:
            self._waiting = waiting
            try:
                yield
            finally:
                self._waiting = None

    async def abort(self) -> None:
        if self.body is not None:
            await self.body.abort()
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait_to_resume(self) -> bool:
        """Whether the rest of the answer may be asked for. Waits, whatever pause the server has allowed."""
        if self.is_cancelled or self._resumptions >= _MAX_RESUMPTIONS:
            return False
        self._resumptions += 1
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._resumable_at - loop.time())
        self._resumable_at = loop.time() + _RESUME_SECONDS
        return True


class LimitedBody(httpx2.AsyncByteStream):
    """The body of an answer. Its errors are of the kinds that the SDK takes for an error of this request."""

    def __init__(
        self,
        body: httpx2.AsyncByteStream,
        max_bytes: int,
        note: Callable[[Failure], None],
        *,
        is_stream: bool,
    ) -> None:
        self._body = body
        self._max_bytes = max_bytes
        self._note = note
        self._is_stream = is_stream
        self._is_aborted = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            async for piece in self._body:
                received += len(piece)
                if received > self._max_bytes:
                    why = f"The answer is larger than {self._max_bytes} bytes."
                    raise self._fail(Failure(Kind.TOO_LARGE, why), is_final=True)
                yield piece
        except httpx2.TransportError as error:
            was_aborted, self._is_aborted = self._is_aborted, True
            if isinstance(error, httpx2.SSEError):
                raise
            raise self._fail(Failure(Kind.LOST, describe(error)), is_final=was_aborted) from error
        except asyncio.CancelledError:
            self._is_aborted = True
            raise
        if self._is_stream:
            # With an answer in it, the SDK would have stopped reading.
            self._note(Failure(Kind.LOST, "the stream ended without an answer"))
            # The SDK keeps it while it asks for the rest.
            await self._body.aclose()

    async def aclose(self) -> None:
        try:
            if self._is_stream and not self._is_aborted:
                await self._drain()
        finally:
            await self._body.aclose()

    async def _drain(self) -> None:
        """Read what follows the answer, the end of the stream: only then can the connection be used again."""
        with suppress(httpx2.TransportError, TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._body:
                    pass

    async def abort(self) -> None:
        self._is_aborted = True
        await self._body.aclose()

    def _fail(self, failure: Failure, *, is_final: bool) -> Exception:
        """``is_final``: the SDK must not ask for the rest of the stream."""
        self._note(failure)
        if self._is_stream:
            return httpx2.SSEError(failure.why) if is_final else httpx2.ReadError(failure.why)
        return httpx2.StreamError(failure.why)


def describe(error: Exception) -> str:
    return str(error) or type(error).__name__
