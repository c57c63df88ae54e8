"""Sockets and HTTP/1.1: reads requests, calls the application, writes its reply.

A reply without waits is written within the read callback, without a task.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import httptools

from holdfast.testing.replies import Reply, complete_response
from holdfast.testing.script import Gate, Hang, HangUp, Pause, ResetConnection

MAX_BODY_BYTES = 64 * 1024 * 1024

# SO_LINGER on, zero seconds: closing sends a reset (RST).
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """The reply, and the callback for its end: `on_end(closed_early)`."""

    reply: Reply
    on_end: Callable[[bool], None]


Application: TypeAlias = Callable[[HttpRequest], Exchange]


class Server:
    """Listens on one address and owns the connections made to it."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port: the one asked for, or a free one for 0."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self._application, self._connections), host, port, backlog=1024
        )
        listening_port: int = self._listener.sockets[0].getsockname()[1]
        return listening_port

    async def stop(self) -> None:
        if self._listener is None:
            return
        self._listener.close()
        tasks = [task for connection in set(self._connections) if (task := connection.abort())]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listener.wait_closed()
        self._listener = None


class Connection(asyncio.Protocol):
    """One client's connection: its requests one after the other."""

    def __init__(self, application: Application, connections: "set[Connection]") -> None:
        self._application = application
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._waiting: deque[HttpRequest] = deque()
        self._current: Exchange | None = None
        self._keep_alive = True
        self._reply_task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._all_written = False

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection; return the task that still wrote the reply, if any."""
        self._end_exchange(closed_early=False)
        self._transport.abort()
        if self._reply_task is not None:
            self._reply_task.cancel()
        return self._reply_task

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked with isinstance: uvloop's transports do not subclass those of asyncio.
        self._transport = cast("asyncio.Transport", transport)
        # With a limit of zero, writing is paused exactly while bytes are unsent: so we know whether a client that
        # closes has been sent everything.
        self._transport.set_write_buffer_limits(high=0)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, b"not an HTTP request")
            return
        if self._body_bytes > MAX_BODY_BYTES:
            self._refuse(413, b"request body too large")
            return
        self._serve_waiting()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._all_written:
            self._finish()
            self._serve_waiting()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._waiting.clear()
        self._writable.set()
        if self._reply_task is not None:
            self._reply_task.cancel()
        self._end_exchange(closed_early=True)

    # httptools' callbacks

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= MAX_BODY_BYTES:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._waiting.append(
            HttpRequest(
                method=self._parser.get_method().decode("latin-1"),
                target=self._target.decode("latin-1"),
                headers=self._headers,
                body=b"".join(self._body),
                keep_alive=self._parser.should_keep_alive(),
            )
        )

    # answering

    def _serve_waiting(self) -> None:
        while self._waiting and self._current is None and not self._transport.is_closing():
            request = self._waiting.popleft()
            self._keep_alive = request.keep_alive
            self._current = self._application(request)
            self._answer(self._current.reply)

    def _answer(self, reply: Reply) -> None:
        match reply:
            case [bytes() as everything]:
                self._transport.write(everything)
                self._finish_when_written()
            case _:
                self._reply_task = asyncio.get_running_loop().create_task(self._write_reply(reply))

    async def _write_reply(self, reply: Reply) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        for step in reply:
            match step:
                case bytes():
                    self._transport.write(step)
                    await self._writable.wait()
                case Pause(seconds=seconds):
                    # Counted from the schedule, not from now, so that many small pauses do not drift.
                    due_at += seconds
                    await asyncio.sleep(due_at - loop.time())
                case Gate():
                    if not await _wait_at_gate(step):
                        self._reset()
                        return
                    due_at = loop.time()
                case Hang():
                    await loop.create_future()
                case HangUp():
                    self._end_exchange(closed_early=False)
                    self._transport.close()
                    return
                case ResetConnection():
                    self._reset()
                    return
        self._reply_task = None
        self._finish_when_written()
        self._serve_waiting()

    def _finish_when_written(self) -> None:
        """End the exchange as soon as the last byte has been sent."""
        if self._writable.is_set():
            self._finish()
        else:
            self._all_written = True

    def _finish(self) -> None:
        self._all_written = False
        self._end_exchange(closed_early=False)
        if not self._keep_alive:
            self._transport.close()

    def _reset(self) -> None:
        self._end_exchange(closed_early=False)
        plain = self._transport.get_extra_info("socket")
        # A second handle on the same socket: not every loop's transport lets options be set.
        with socket.fromfd(plain.fileno(), plain.family, plain.type) as handle:
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def _end_exchange(self, *, closed_early: bool) -> None:
        exchange, self._current = self._current, None
        if exchange is not None:
            exchange.on_end(closed_early)

    def _refuse(self, status: int, message: bytes) -> None:
        if self._current is None and not self._transport.is_closing():
            self._transport.write(complete_response(status, message, content_type="text/plain"))
        self._transport.close()


async def _wait_at_gate(gate: Gate) -> bool:
    gate.reached.happen()
    try:
        await gate.released.wait(gate.limit_seconds)
    except TimeoutError:
        return False
    return True
