"""Records what one question sends to its provider and receives, with two hooks of the HTTP client.

The hooks do nothing unless the question asks for a record.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns
from typing import cast

import httpx2

from holdfast.adapters.models.pydantic_ai.merged_stream import merge_stream
from holdfast.core.traces import remove_secrets
from holdfast.ports.model import Exchange

# An answer is recorded up to this length. A stream is many times longer than its text.
MAX_RECORDED_BYTES = 8 * 1024 * 1024

_recordings: ContextVar["list[_Recording] | None"] = ContextVar("recordings", default=None)


@contextmanager
def record_exchanges(exchanges: list[Exchange] | None, secrets: tuple[str, ...]) -> Iterator[None]:
    """Record what this task sends and receives inside the context, without ``secrets``."""
    if exchanges is None:
        yield
        return
    recordings: list[_Recording] = []
    _recordings.set(recordings)
    error: str | None = None
    try:
        yield
    except BaseException as raised:
        error = str(raised) or type(raised).__name__
        raise
    finally:
        _recordings.set(None)
        for recording in recordings:
            # The error belongs to the last exchange.
            exchanges.append(
                recording.to_exchange(error if recording is recordings[-1] else None, secrets)
            )


async def record_request(request: httpx2.Request) -> None:
    if (recordings := _recordings.get()) is not None:
        recordings.append(_Recording(await request.aread()))


async def record_response(response: httpx2.Response) -> None:
    if recordings := _recordings.get():
        recordings[-1].status_code = response.status_code
        recordings[-1].encoding = response.headers.get("content-encoding")
        response.stream = _RecordedBody(
            cast("httpx2.AsyncByteStream", response.stream), recordings[-1]
        )


class _Recording:
    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self._began_ns = self._ended_ns = perf_counter_ns()
        self._received: list[bytes] = []
        self._received_bytes = 0
        self.status_code: int | None = None
        self.encoding: str | None = None

    def add(self, arrived: bytes) -> None:
        self._received_bytes += len(arrived)
        if self._received_bytes <= MAX_RECORDED_BYTES:
            self._received.append(arrived)

    def end(self) -> None:
        self._ended_ns = perf_counter_ns()

    def to_exchange(self, error: str | None, secrets: tuple[str, ...]) -> Exchange:
        if self.status_code is None or error is not None:
            self.end()
        response = merge_stream(_decompress(b"".join(self._received), self.encoding))
        if self._received_bytes > MAX_RECORDED_BYTES:
            response |= {"truncated": True, "size_bytes": self._received_bytes}
        return Exchange(
            request=remove_secrets(merge_stream(self._sent), secrets),
            response=remove_secrets(response, secrets),
            status_code=self.status_code,
            error=remove_secrets(error, secrets),
            latency_ms=(self._ended_ns - self._began_ns) // 1_000_000,
        )


def _decompress(body: bytes, encoding: str | None) -> bytes:
    """The body without its content encoding; empty if it cannot be decoded."""
    if encoding is None:
        return body
    try:
        return httpx2.Response(200, headers={"content-encoding": encoding}, content=body).content
    except httpx2.DecodingError:
        return b""


class _RecordedBody(httpx2.AsyncByteStream):
    """The body, which is recorded while it is read."""

    def __init__(self, body: httpx2.AsyncByteStream, recording: _Recording) -> None:
        self._body = body
        self._recording = recording

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for arrived in self._body:
            self._recording.add(arrived)
            yield arrived

    async def aclose(self) -> None:
        self._recording.end()
        await self._body.aclose()
