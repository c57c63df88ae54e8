"""Server-sent events over plain ASGI (wire-v1 §4.1, §4.7). This is the hot path of HTTP, so it does without a framework.

This module frames items, sends keep-alives and notices clients that leave. Each wire says what its items are.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

# Some proxies cut a stream after 15 s of silence, and the SDK gives up after 60. V1 waited 20.
KEEP_ALIVE_SECONDS = 10.0

MEDIA_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_COMMENT = b": keep-alive\n\n"

_HEADERS = {
    "cache-control": "no-cache",
    # nginx would collect tokens until its buffer is full.
    "x-accel-buffering": "no",
}

_encoder = msgspec.json.Encoder()


def encode_frames(items: Iterable[object], error_type: type | tuple[()] = ()) -> bytes:
    """All items as one chunk: sending a chunk costs far more than an item."""
    return b"".join([_encode_frame(item, error_type) for item in items])


def _encode_frame(item: object, error_type: type | tuple[()]) -> bytes:
    # Only errors have an event name: the SDKs drop everything else that has one.
    name = b"event: error\n" if isinstance(item, error_type) else b""
    return b"%bdata: %b\n\n" % (name, _encoder.encode(item))


class EventStream(Response):
    """Sends chunks as they come, each once the client has taken those before it.

    When the client leaves, only the reading ends. The run goes on, unless ``on_disconnect`` stops it.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        *,
        keep_alive: Callable[[], bytes] = lambda: KEEP_ALIVE_COMMENT,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        on_disconnect: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        # Not Response.__init__: it would announce the length of a body that is still to come.
        self.status_code = 200
        self.background = None
        self.init_headers(_HEADERS)
        self._chunks = chunks
        self._keep_alive = keep_alive
        self._keep_alive_seconds = keep_alive_seconds
        self._on_disconnect = on_disconnect
        self._last_sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        self._last_sent_at = asyncio.get_running_loop().time()
        sending = asyncio.create_task(self._send_chunks(send))
        watching = asyncio.create_task(self._keep_alive_until_disconnect(receive, send))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            has_left = not sending.done()
        finally:
            await cancel_tasks(sending, watching)
        if not has_left:
            # After a complete answer the server reports a disconnect too, so ``watching`` does not count here.
            sending.result()
        elif self._on_disconnect is not None:
            await self._on_disconnect()

    async def _send_chunks(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await self._send_chunk(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive_until_disconnect(self, receive: Receive, send: Send) -> None:
        """Return once the client has left. Until then send a keep-alive whenever nothing else was sent for long."""
        while True:
            due = self._last_sent_at + self._keep_alive_seconds
            try:
                async with asyncio.timeout_at(due):
                    return await receive_disconnect(receive)
            except TimeoutError:
                if self._last_sent_at + self._keep_alive_seconds <= due:
                    await self._send_chunk(send, self._keep_alive())

    async def _send_chunk(self, send: Send, chunk: bytes) -> None:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._last_sent_at = asyncio.get_running_loop().time()


async def receive_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_tasks(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
