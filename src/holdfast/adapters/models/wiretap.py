"""Listening in on one question: what is really sent to the provider, and what really comes back.

Two hooks of the HTTP client. They do nothing unless a question asks for it.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns
from typing import cast

import httpx2

from holdfast.adapters.models.assembled import assembled
from holdfast.core.traces import scrubbed
from holdfast.ports.model import Exchange

# Of an answer so much is kept, as it came: a stream is many times longer than what it says.
KEPT_BYTES = 8 * 1024 * 1024

_taps: ContextVar["list[_Tap] | None"] = ContextVar("taps", default=None)


@contextmanager
def listening(exchanges: list[Exchange] | None, secrets: tuple[str, ...]) -> Iterator[None]:
    """Add what this task sends and receives meanwhile; ``secrets`` are in none of it."""
    if exchanges is None:
        yield
        return
    taps: list[_Tap] = []
    _taps.set(taps)
    error: str | None = None
    try:
        yield
    except BaseException as raised:
        error = str(raised) or type(raised).__name__
        raise
    finally:
        _taps.set(None)
        for tap in taps:
            # The last one is what it ended with.
            exchanges.append(tap.exchange(error if tap is taps[-1] else None, secrets))


async def tap_request(request: httpx2.Request) -> None:
    if (taps := _taps.get()) is not None:
        taps.append(_Tap(await request.aread()))


async def tap_response(response: httpx2.Response) -> None:
    if taps := _taps.get():
        taps[-1].status_code = response.status_code
        taps[-1].encoding = response.headers.get("content-encoding")
        response.stream = _Tapped(cast("httpx2.AsyncByteStream", response.stream), taps[-1])


class _Tap:
    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self._began_ns = self._ended_ns = perf_counter_ns()
        self._received: list[bytes] = []
        self._received_bytes = 0
        self.status_code: int | None = None
        self.encoding: str | None = None

    def hear(self, arrived: bytes) -> None:
        self._received_bytes += len(arrived)
        if self._received_bytes <= KEPT_BYTES:
            self._received.append(arrived)

    def end(self) -> None:
        self._ended_ns = perf_counter_ns()

    def exchange(self, error: str | None, secrets: tuple[str, ...]) -> Exchange:
        if self.status_code is None or error is not None:
            self.end()
        response = assembled(_plain(b"".join(self._received), self.encoding))
        if self._received_bytes > KEPT_BYTES:
            response |= {"truncated": True, "size_bytes": self._received_bytes}
        return Exchange(
            request=scrubbed(assembled(self._sent), secrets),
            response=scrubbed(response, secrets),
            status_code=self.status_code,
            error=scrubbed(error, secrets),
            latency_ms=(self._ended_ns - self._began_ns) // 1_000_000,
        )


def _plain(body: bytes, encoding: str | None) -> bytes:
    """The body unpacked, as far as it can be."""
    if encoding is None:
        return body
    try:
        return httpx2.Response(200, headers={"content-encoding": encoding}, content=body).content
    except httpx2.DecodingError:
        return b""


class _Tapped(httpx2.AsyncByteStream):
    """The body, heard by somebody else too."""

    def __init__(self, body: httpx2.AsyncByteStream, tap: _Tap) -> None:
        self._body = body
        self._tap = tap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for arrived in self._body:
            self._tap.hear(arrived)
            yield arrived

    async def aclose(self) -> None:
        self._tap.end()
        await self._body.aclose()
