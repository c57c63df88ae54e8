"""Connections of a listener that several processes share: who accepts how many, and that nothing stops a process from accepting."""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from starlette.responses import Response
from tests.support.waiting import eventually

from holdfast.http.accepting import accept_in_turns
from holdfast.http.pending_requests import ConnectionLimits, PendingRequests
from holdfast.http.request_pace import RequestPace
from holdfast.http.server import HttpServer

BACKLOG = 512
BURST = 64


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as opened:
        yield opened


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(clients: ExitStack, listener: socket.socket, count: int) -> None:
    """The system makes the connections; they wait until somebody accepts them."""
    for _ in range(count):
        clients.enter_context(socket.create_connection(listener.getsockname()))


class Served(asyncio.Protocol):
    """A connection that counts itself."""

    def __init__(self, served: list[asyncio.BaseTransport]) -> None:
        self._served = served

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._served.append(transport)


@asynccontextmanager
async def accept(
    listener: socket.socket, make: Callable[[list[asyncio.BaseTransport]], asyncio.Protocol]
) -> AsyncIterator[list[asyncio.BaseTransport]]:
    served: list[asyncio.BaseTransport] = []
    task = asyncio.create_task(accept_in_turns(listener, lambda: make(served)))
    try:
        yield served
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for transport in served:
            transport.close()


async def stop_nothing() -> None: ...


@asynccontextmanager
async def serve(listener: socket.socket) -> AsyncIterator[HttpServer]:
    """A server as one of several processes has it."""
    ready = asyncio.Event()
    server = HttpServer(
        Response(),
        pending=PendingRequests(ConnectionLimits(), time.monotonic, ()),
        pace=RequestPace(frozenset()),
        backlog=BACKLOG,
        on_ready=lambda _: ready.set(),
        on_stop=stop_nothing,
        on_second_signal=lambda: None,
        supervised=True,
    )
    task = asyncio.create_task(server.serve(sockets=[listener.dup()]))
    try:
        await eventually(ready.is_set)
        yield server
    finally:
        server.should_exit = True
        await task


async def test_a_burst_of_connections_is_divided_among_the_processes(
    listener: socket.socket, clients: ExitStack
) -> None:
    async with serve(listener) as one, serve(listener) as other:
        connect(clients, listener, BURST)
        counted = [server.server_state.connections for server in (one, other)]
        await eventually(lambda: sum(map(len, counted)) == BURST)

        assert min(map(len, counted)) >= BURST / 4


async def test_one_process_alone_accepts_all(listener: socket.socket, clients: ExitStack) -> None:
    connect(clients, listener, 3 * BURST)

    async with accept(listener, Served) as served:
        await eventually(lambda: len(served) == 3 * BURST)


class ShortOfFiles(socket.socket):
    """A listener of a process that has too many open files at first."""

    failures = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures < 2:
            self.failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_a_process_that_is_short_of_files_accepts_later(
    listener: socket.socket, clients: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    short = ShortOfFiles(fileno=listener.dup().detach())
    connect(clients, listener, 1)

    with short:
        async with accept(short, Served) as served:
            await eventually(lambda: len(served) == 1)

    assert [record.message for record in caplog.records].count("connection.not_accepted") == 2


async def test_a_connection_that_cannot_be_served_keeps_no_other_out(
    listener: socket.socket, clients: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    broken: list[str] = []

    def break_first(served: list[asyncio.BaseTransport]) -> asyncio.Protocol:
        if not broken:
            broken.append("the first")
            raise RuntimeError("a bug")
        return Served(served)

    connect(clients, listener, 3)

    async with accept(listener, break_first) as served:
        await eventually(lambda: len(served) == 2)

    assert "connection.failed" in [record.message for record in caplog.records]
