"""A minimal HTTP client: one open connection, one request at a time.

It does only what the measurements need, so that it measures the server and not itself.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httptools
import msgspec

TIMEOUT_SECONDS = 60.0


class RequestFailed(Exception):
    """The server answered with an error status."""


class Client(asyncio.Protocol):
    def __init__(self, host: str) -> None:
        self._host = host
        # Lines that every request has besides its own.
        self.headers = ""
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._on_data: Callable[[bytes], object]
        self._answered: asyncio.Future[int] | None = None

    @classmethod
    async def connect(cls, address: str) -> Self:
        parts = urlsplit(address)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"{address} is no address")
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: cls(parts.netloc), parts.hostname, parts.port
        )
        return client

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        answer = bytearray()
        status = await self._send(method, path, body, answer.extend)
        return status, bytes(answer)

    async def stream(
        self, path: str, content: Mapping[str, Any], on_data: Callable[[bytes], object]
    ) -> None:
        """POST, and pass on each chunk of the response from within the read callback; return at the end."""
        status = await self._send("POST", path, msgspec.json.encode(content), on_data)
        if status != 200:
            raise RequestFailed(f"POST {path}: {status}")

    async def _send(
        self, method: str, path: str, body: bytes, on_data: Callable[[bytes], object]
    ) -> int:
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n"
            f"content-type: application/json\r\n{self.headers}content-length: {len(body)}\r\n\r\n"
        )
        self._on_data = on_data
        self._parser = httptools.HttpResponseParser(self)
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + body)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._answered

    async def post(self, path: str, content: Mapping[str, Any]) -> Any:
        status, body = await self.request("POST", path, msgspec.json.encode(content))
        if status != 200:
            raise RequestFailed(f"POST {path}: {status} {body[:300]!r}")
        return msgspec.json.decode(body)

    def close(self) -> None:
        self._transport.close()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionError("The server hung up."))

    # the parser's callbacks

    def on_body(self, data: bytes) -> None:
        self._on_data(data)

    def on_message_complete(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(self._parser.get_status_code())
