"""One HTTP connection: uvicorn's protocol with limits on what a client may send before it has sent a request.

Uvicorn itself reads a header of any length for any time, and forgets a connection whose answer was sent before its
body had come.
"""

import asyncio
from functools import partial
from typing import Any, Final, NoReturn

import httptools
import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from holdfast.http.pending_requests import PendingRequests
from holdfast.http.request_origin import with_connection
from holdfast.http.request_pace import RequestPace

_REFUSALS: Final = {
    400: "This is not a valid HTTP request.",
    408: "The request did not arrive in time.",
    413: "The body of the request is in too many pieces.",
    429: "Too many requests of this connection wait for their answers.",
    431: "The header of the request is too large.",
    503: "The server has too many connections.",
}

# Requests of one connection that wait for the answer to an earlier one. Hardly any client sends the next one before.
_MAX_WAITING: Final = 32
# Of one body: each costs the same, however small it is. A client that sends the largest body needs some hundreds.
_MAX_PIECES: Final = 100_000


class LimitedConnection(HttpToolsProtocol):
    """Refuses a client that sends too much (413, 429, 431), too slowly (408) or no HTTP (400), and closes the
    connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        pending: PendingRequests,
        pace: RequestPace,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.address = ""
        self._pending = pending
        self._pace = pace
        self._limits = pending.limits
        self._is_refused = False
        # Whether the next byte belongs to a header, or to what follows one.
        self._is_in_header = True
        # Whether the first byte of that header has come.
        self._has_begun = False
        self._has_ended_message = False
        self._has_body_bytes = False
        self._body_pieces = 0
        # The request that is being answered; ``cycle`` is the newest, which may wait for that answer.
        self._answered: RequestResponseCycle | None = None
        # Why the parser was stopped, if it was not for invalid HTTP.
        self._fault = 400
        # What has come of the current header, or of the trailers of a body.
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        is_full = len(self.connections) >= self._limits.connections
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.app_state = with_connection(self.app_state, self.client, self.server)
        if is_full and not self._pending.drop_oldest():
            self._refuse(503)
            return
        self._pending.await_header(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pending.discard(self)
        if self._answered is not None and not self._answered.response_complete:
            # Uvicorn tells it to the newest request only.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data and not self._is_refused:
            # Never more of a header than is allowed: the parser copies all of a long field at each call.
            room = self._limits.header_bytes - self._header_bytes
            piece = data[:room] if self._is_in_header else data
            data = data[len(piece) :]
            self._has_ended_message = self._has_body_bytes = False
            self._parse(piece)
            if not self._is_refused:
                self._after_piece(len(piece))

    def _parse(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # The request is answered as if it had not asked; what comes next may be another protocol.
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._fault)

    def _after_piece(self, size: int) -> None:
        # A piece with the end of a request has an unknown part of the next one, which counts from the next piece on.
        if not self._has_ended_message and not self._has_body_bytes:
            self._header_bytes += size
        if self._header_bytes >= self._limits.header_bytes:
            self._refuse(431)
        elif not self._is_in_header:
            self._pending.await_body(self)
        elif self._is_answering():
            # Some clients end a body with an empty line that belongs to nothing.
            if self._has_begun:
                self._pending.await_header(self)
        elif self._has_begun or not self._has_ended_message:
            self._pending.await_header(self)
        elif self.cycle.response_complete and not self.transport.is_closing():
            # The answer came first, and the time for a next request ended with the rest of this one.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        self._has_begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_header:
            # Trailers: uvicorn would add them to the header of a request that has been let in.
            return
        if len(self.headers) >= self._limits.header_count:
            self._stop_parser(431)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_target()
        if len(self.pipeline) >= _MAX_WAITING:
            self._stop_parser(429)
        super().on_headers_complete()
        self._is_in_header = False
        self._header_bytes = self._body_pieces = 0
        self._pending.end_header(self)

    def _check_target(self) -> None:
        """An absolute target names a host of its own; it must be the one that the server checks, which is ``Host``."""
        if self.url.startswith(b"/"):
            return
        authority = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        if authority not in [value for name, value in self.headers if name == b"host"]:
            self._stop_parser(400)

    def _stop_parser(self, status: int) -> NoReturn:
        self._fault = status
        raise ValueError(_REFUSALS[status])

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        self._pace.begin(cycle.scope["path"], partial(self._start_unless_left, cycle, app))

    def _start_unless_left(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._body_pieces += 1
        if self._body_pieces > _MAX_PIECES:
            self._stop_parser(413)
        self._has_body_bytes = True
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_header = True
        self._has_begun = False
        self._has_ended_message = True
        self._header_bytes = 0
        self._pending.discard(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._is_answered():
            self._pending.hurry_body(self)
        super().on_response_complete()
        if self.pipeline:
            # Uvicorn would read on, and so let more requests wait.
            self.flow.pause_reading()

    def end_late_request(self) -> None:
        is_silent = self._is_in_header and not (self._has_begun or self._header_bytes)
        if self._is_refused or is_silent or self._is_answered():
            self.drop()
        else:
            self._refuse(408)

    def drop(self) -> None:
        self.transport.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_answered(self) -> bool:
        """Whether the answer was sent before the end of the body had come."""
        return not self._is_in_header and not self._is_answering()

    def _refuse(self, status: int) -> None:
        self._is_refused = True
        if self._is_answering():
            if self.pipeline or self.cycle.response_started:
                # Nothing may be written into the middle of an answer, or before one.
                self.drop()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self._is_answered():
            self.transport.write(_render_refusal(status))
        # To close at once would take the answer away from a client that is still sending.
        self.transport.write_eof()
        self._pending.linger(self)


def _render_refusal(status: int) -> bytes:
    # No wire is known yet; every one of them has this field.
    text = msgspec.json.encode({"detail": _REFUSALS[status]})
    head = f"content-type: application/json\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
    return STATUS_LINE[status] + head.encode() + text
