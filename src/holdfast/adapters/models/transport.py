"""An HTTP/1.1 transport for streams: everything that has arrived is returned by one read, with little work.

httpx's own transport spends 0.07 ms on each read (decisions/0010), more than everything else that happens to a
token. This one keeps connections open and does no more than the SDKs need: no proxies, no HTTP/2.
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias, cast

import httptools
import httpx2

_KEEP_IDLE_SECONDS = 60.0
_MAX_IDLE = 200
# Above this the connection stops reading, until the reader catches up.
_MAX_UNREAD_BYTES = 1024 * 1024
# Of all that is not body and comes in one piece: status line and headers, or trailers.
_MAX_HEAD_BYTES = 512 * 1024

_FRAMING = (b"content-length", b"transfer-encoding")

_Origin: TypeAlias = tuple[str, str, int]


class StreamTransport(httpx2.AsyncBaseTransport):
    # Whether a request is sent again on a new connection if the idle one that it was sent on turns out to be closed. The
    # server may have read it before it closed.
    resends = True

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        """Without an SSL context only plain HTTP is possible."""
        self._ssl_context = ssl_context
        self._idle: defaultdict[_Origin, list[_Connection]] = defaultdict(list)

    def find_origin(self, request: httpx2.Request) -> _Origin:
        url = request.url
        return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)

    async def find_addresses(self, host: str, port: int) -> Sequence[str]:
        """What to connect to, in this order."""
        del port
        return [host]

    def check_before_sending(self, request: httpx2.Request) -> None:
        """Called when there is a connection for the request, which an exception keeps from being sent."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        timeouts = request.extensions.get("timeout", {})
        sent = await _render(request)
        origin = self.find_origin(request)
        idle = self._take_idle(origin)
        if idle is not None:
            try:
                return await self._exchange(idle, request, sent, timeouts.get("read"))
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                # The server closed the idle connection just now: it did not receive the request.
                if idle.has_received or not self.resends:
                    raise
        connection = await self._connect(origin, timeouts.get("connect"))
        return await self._exchange(connection, request, sent, timeouts.get("read"))

    async def _exchange(
        self, connection: "_Connection", request: httpx2.Request, sent: bytes, silence: float | None
    ) -> httpx2.Response:
        try:
            self.check_before_sending(request)
            connection.send(sent, silence)
            await connection.wait_for_headers()
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            connection.status,
            headers=connection.headers,
            stream=_Body(connection, self._idle[self.find_origin(request)]),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        self.drop_idle()

    def drop_idle(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
            connections.clear()

    def _take_idle(self, origin: _Origin) -> "_Connection | None":
        idle = self._idle[origin]
        while idle:
            connection = idle.pop()
            if connection.is_fresh:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: _Origin, seconds: float | None) -> "_Connection":
        scheme, host, port = origin
        if scheme == "https" and self._ssl_context is None:
            raise httpx2.UnsupportedProtocol("This transport speaks plain HTTP only.")
        try:
            async with asyncio.timeout(seconds):
                return await self._connect_to_any(scheme, host, port)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"No connection to {host} within {seconds} s.") from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error

    async def _connect_to_any(self, scheme: str, host: str, port: int) -> "_Connection":
        loop = asyncio.get_running_loop()
        secure = scheme == "https"
        failure: OSError | None = None
        for address in await self.find_addresses(host, port):
            try:
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop),
                    address,
                    port,
                    ssl=self._ssl_context if secure else None,
                    server_hostname=host if secure else None,
                )
            except OSError as error:
                failure = error
            else:
                return connection
        raise failure or OSError("There is no address to connect to.")


class _Body(httpx2.AsyncByteStream):
    def __init__(self, connection: "_Connection", idle: "list[_Connection]") -> None:
        self._connection: _Connection | None = connection
        self._idle = idle

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (arrived := await self._connection.read()):
            yield arrived

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.is_reusable and len(self._idle) < _MAX_IDLE:
            connection.mark_idle()
            self._idle.append(connection)
        else:
            connection.abort()


class _Connection(asyncio.Protocol):
    """One connection, one response at a time. ``httptools`` parses HTTP."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self._reset(None)

    def _reset(self, silence_seconds: float | None) -> None:
        self._silence_seconds = silence_seconds
        self._parser = httptools.HttpResponseParser(self)
        self._received: list[bytes] = []
        self._unread_bytes = 0
        self._head_bytes = 0
        self._complete = False
        self._keep_alive = False
        self.has_received = False
        self._failure: httpx2.HTTPError | None = None
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def is_fresh(self) -> bool:
        """Whether it may be used again: it is open and has not been idle for too long."""
        idle_seconds = self._loop.time() - self._idle_since
        return not self._transport.is_closing() and idle_seconds < _KEEP_IDLE_SECONDS

    @property
    def is_reusable(self) -> bool:
        whole = self._complete and self._keep_alive and not self._received
        return whole and not self._transport.is_closing()

    def send(self, request: bytes, silence_seconds: float | None) -> None:
        self._reset(silence_seconds)
        self._transport.write(request)

    async def wait_for_headers(self) -> None:
        while not self.status:
            await self._wait_for_data()

    async def read(self) -> bytes:
        """All of the body that has arrived; empty at its end."""
        while not self._received:
            if self._complete:
                return b""
            await self._wait_for_data()
        arrived = b"".join(self._received)
        self._received.clear()
        if self._unread_bytes > _MAX_UNREAD_BYTES:
            self._transport.resume_reading()
        self._unread_bytes = 0
        return arrived

    def mark_idle(self) -> None:
        self._idle_since = self._loop.time()

    def abort(self) -> None:
        self._transport.abort()

    async def _wait_for_data(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        timer = self._silence_seconds and self._loop.call_later(
            self._silence_seconds,
            self._fail,
            httpx2.ReadTimeout("The server sent nothing for too long."),
        )
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: httpx2.HTTPError) -> None:
        self._failure = self._failure or failure
        self._wake()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        # A piece of the body sets it back.
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(httpx2.RemoteProtocolError("The server's answer is not HTTP."))
            self._transport.abort()
            return
        if self._head_bytes > _MAX_HEAD_BYTES:
            self._fail(httpx2.RemoteProtocolError("The server's headers never end."))
            self._transport.abort()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(httpx2.ReadError(str(error) or type(error).__name__))
        elif not self.status:
            self._fail(
                httpx2.RemoteProtocolError("The server closed the connection without an answer.")
            )
        elif self._ends_with_connection():
            self._complete = True
            self._wake()
        elif not self._complete:
            self._fail(
                httpx2.RemoteProtocolError(
                    "The server closed the connection in the middle of the answer."
                )
            )

    def _ends_with_connection(self) -> bool:
        return not any(name.lower() in _FRAMING for name, _ in self.headers)

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # 1xx statuses come before the real answer.
            self.headers = []
        else:
            self.status = status

    def on_body(self, body: bytes) -> None:
        self._received.append(body)
        self._head_bytes = 0
        before, self._unread_bytes = self._unread_bytes, self._unread_bytes + len(body)
        if before <= _MAX_UNREAD_BYTES < self._unread_bytes:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()


async def _render(request: httpx2.Request) -> bytes:
    """The request as bytes."""
    stream = cast("httpx2.AsyncByteStream", request.stream)
    body = b"".join([piece async for piece in stream])
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [
        b"%b: %b" % (name, value)
        for name, value in request.headers.raw
        if name.lower() not in _FRAMING
    ]
    lines.append(b"content-length: %d\r\n\r\n" % len(body))
    return b"\r\n".join(lines) + body
