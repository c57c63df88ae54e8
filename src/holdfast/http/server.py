"""The HTTP server process: uvicorn on a socket that is open before anything else starts, with our way to stop."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from holdfast.http.connection_scope import ConnectionProtocol

# How long responses may still take to reach their clients when the last run has ended.
STOP_SECONDS = 5

_BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


class HttpServer(uvicorn.Server):
    """Serves until SIGINT or SIGTERM, then awaits ``on_stop`` while it still answers requests, and returns. A second
    signal calls ``on_second_signal`` and drops the connections. ``on_ready`` gets the URL once the server answers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], Awaitable[None]],
        on_second_signal: Callable[[], object],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=ConnectionProtocol,
                lifespan="off",
                # No route uses WebSockets, and loading them takes time and memory.
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_second_signal = on_second_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            self._on_ready(_listener_url(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The listener is still open: a run in progress can be read, and cancelled, until it ends.
        await self._on_stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame
        if self.should_exit:
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
