"""A process that serves: its listening socket, its event loop, and the HTTP server on top of the running server."""

import asyncio
import socket
import time
from collections.abc import Callable

import uvloop

from holdfast import logs
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.sandbox import confinement
from holdfast.assembly.http_app import build_http_app
from holdfast.assembly.lifespan import running_server
from holdfast.assembly.models import build_provider_settings
from holdfast.assembly.warm_up import warm_up
from holdfast.config import Settings
from holdfast.errors import StoreUnavailable
from holdfast.http.app import WIRES
from holdfast.http.drain_gate import DrainGate
from holdfast.http.open_files import fit_to_open_files
from holdfast.http.pending_requests import PendingRequests
from holdfast.http.request_pace import RequestPace
from holdfast.http.server import HttpServer, open_listener


def serve(
    settings: Settings, on_ready: Callable[[str], None], listener: socket.socket | None = None
) -> None:
    """Serve until SIGINT or SIGTERM. ``on_ready`` gets the URL once the server answers. A server with a ``listener``
    shares it with others, and has a supervisor.

    Raises OSError if the address is not available, BackendError if the store is not.
    """
    prepare_process(settings)
    limits, backlog = fit_to_open_files(settings.connection_limits)
    pending = PendingRequests(limits, time.monotonic, settings.trusted_proxies)
    with (
        listener or open_socket(settings) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
    ):
        loop.run(
            _serve(settings, listening, backlog, pending, on_ready, supervised=listener is not None)
        )


def prepare_process(settings: Settings) -> None:
    """What a process that has read the settings does first."""
    logs.set_up(settings.log_level, settings.log_format, settings.secrets, (StoreUnavailable,))
    confinement.hide_memory()


def load_libraries(settings: Settings) -> None:
    """Load what a server loads after its start. Processes that are forked from this one share it, and start sooner."""

    async def load() -> None:
        model = ModelRouter(build_provider_settings(settings))
        await warm_up(model)
        await model.aclose()

    asyncio.run(load())


def open_socket(settings: Settings) -> socket.socket:
    """The listening socket. Raises OSError if the address is not available."""
    _, backlog = fit_to_open_files(settings.connection_limits)
    return open_listener(settings.host, settings.port, backlog)


async def _serve(
    settings: Settings,
    listener: socket.socket,
    backlog: int,
    pending: PendingRequests,
    on_ready: Callable[[str], None],
    *,
    supervised: bool,
) -> None:
    async with running_server(settings) as running:
        gate = DrainGate(build_http_app(settings, running), WIRES)

        async def on_stop() -> None:
            gate.refuse_messages(settings.drain_seconds)
            await running.stop(settings.drain_seconds)

        server = HttpServer(
            gate,
            pending=pending,
            pace=RequestPace(WIRES.open_paths),
            backlog=backlog,
            on_ready=on_ready,
            on_stop=on_stop,
            on_second_signal=running.worker_task.cancel,
            supervised=supervised,
        )
        await server.serve(sockets=[listener])
