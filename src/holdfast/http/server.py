"""The HTTP server process: uvicorn on a socket that is open before anything else starts, with our way to stop."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from holdfast.http.accepting import accept_in_turns
from holdfast.http.connection import LimitedConnection
from holdfast.http.pending_requests import PendingRequests
from holdfast.http.request_pace import RequestPace

# How long responses may still take to reach their clients when the last run has ended.
STOP_SECONDS = 5

# Uvicorn's loop ticks ten times a second.
_SWEEP_TICKS = 10
# Of those that the system has accepted, how many connections are taken over in one turn of the loop.
_MOST_ACCEPTS = 32
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


class HttpServer(uvicorn.Server):
    """Serves until SIGINT or SIGTERM, then awaits ``on_stop`` while it still answers requests, and returns. A second
    signal calls ``on_second_signal`` and drops the connections. ``on_ready`` gets the URL once the server answers.

    Of a ``supervised`` server only SIGINT is a second signal: it may get SIGTERM from its supervisor, at the death of
    that, and from whoever stops all processes at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        pending: PendingRequests,
        pace: RequestPace,
        backlog: int,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], Awaitable[None]],
        on_second_signal: Callable[[], object],
        supervised: bool = False,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                http=cast(
                    "type[asyncio.Protocol]", partial(LimitedConnection, pending=pending, pace=pace)
                ),
                # No route uses WebSockets, and loading them takes time and memory.
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # Uvicorn would believe whoever is on this machine; ``proxies`` believes whom the operator named.
                proxy_headers=False,
                backlog=backlog,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._pending = pending
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_second_signal = on_second_signal
        self._second_signals = (signal.SIGINT,) if supervised else _SIGNALS
        self._is_supervised = supervised
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._is_supervised:
            await super().startup([])
            self._accepting = [self._accept(listener) for listener in sockets or ()]
        else:
            await super().startup(self._copy_listeners(sockets or []))
        for listener in sockets or ():
            self._on_ready(_listener_url(listener))

    def _accept(self, listener: socket.socket) -> asyncio.Task[None]:
        """Accept in turns with the other processes of the listener."""
        connect = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        protocol = partial(
            connect,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        task = asyncio.create_task(accept_in_turns(listener, protocol))
        task.add_done_callback(self._end_with_accepting)
        return task

    def _end_with_accepting(self, _: asyncio.Task[None]) -> None:
        # A process that accepts nothing any more is of no use; the supervisor starts another one.
        self.should_exit = True

    def _copy_listeners(self, listeners: list[socket.socket]) -> list[socket.socket]:
        # uvloop accepts one connection of a listener in each turn of its loop. With copies of it a probe need not wait
        # until thousands of others have been accepted one by one.
        copies = max(1, min(_MOST_ACCEPTS, self.config.backlog // _MOST_ACCEPTS))
        return [listener.dup() for listener in listeners for _ in range(copies)]

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP_TICKS == 0:
            self._pending.sweep()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The listener is still open: a run in progress can be read, and cancelled, until it ends.
        await self._on_stop()
        for task in self._accepting:
            task.cancel()
        ended = await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError | None):
                raise error

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del frame
        if self.should_exit and sig in self._second_signals:
            self.force_exit = True
            self._on_second_signal()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own version raises the signal again at the end, which would skip closing the store."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _listener_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ip_address(host).version == 6 else f"http://{host}:{port}"
