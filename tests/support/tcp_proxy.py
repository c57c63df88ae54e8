"""A TCP proxy on loopback in a thread of its own: a network that a test can let hang, or cut."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import make_url
from tests.support.waiting import WAIT_SECONDS

# A host and a port, or a socket file.
Target = tuple[str, int] | Path


class TcpProxy:
    """Forwards each connection to the target until told otherwise."""

    def __init__(self, target: Target) -> None:
        self.host = "127.0.0.1"
        self._target = target
        # Never listens: it only keeps the port for us while the proxy refuses connections.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reservation.bind((self.host, 0))
        self.port: int = self._reservation.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")
        self._server: asyncio.Server | None = None
        self._may_forward = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.resume()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()
        self._reservation.close()

    def hang(self) -> None:
        """Keep all connections open and accept new ones, but forward nothing."""
        self._do(self._hang())

    def forget(self) -> None:
        """Let the connections that are open hang for ever; new ones work. So does a firewall that has forgotten them."""
        self._do(self._forget())

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._do(self._cut())

    def resume(self) -> None:
        """Forward again, first what was sent while the proxy hung, and accept connections."""
        self._do(self._resume())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(WAIT_SECONDS)

    async def _hang(self) -> None:
        self._may_forward.clear()

    async def _forget(self) -> None:
        self._may_forward.clear()
        self._may_forward = asyncio.Event()
        self._may_forward.set()

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _resume(self) -> None:
        self._may_forward.set()
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, self.host, self.port, reuse_port=True
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Accepted just before a cut.
            if self._server is not None:
                with suppress(OSError):
                    await self._forward(reader, writer)
        except asyncio.CancelledError:
            # Not raised again: the server of asyncio would log it.
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        may_forward = self._may_forward
        await may_forward.wait()
        back_reader, back_writer = await _connect(self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, back_writer, may_forward))
                both.create_task(_pump(back_reader, writer, may_forward))
        except* OSError:
            pass
        finally:
            back_writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_forward: asyncio.Event
) -> None:
    is_open = True
    while is_open:
        data = await reader.read(65_536)
        await may_forward.wait()
        is_open = bool(data)
        if is_open:
            writer.write(data)
            await writer.drain()
        elif not writer.is_closing():
            writer.write_eof()


async def _connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(target, Path):
        return await asyncio.open_unix_connection(target)
    return await asyncio.open_connection(*target)


@contextmanager
def proxy_postgres(url: str) -> Iterator[tuple[TcpProxy, str]]:
    """A proxy before the test's PostgreSQL, which listens on a socket file only; and the database's address through it."""
    address = make_url(url)
    socket_file = Path(str(address.query["host"])) / f".s.PGSQL.{address.port or 5432}"
    with TcpProxy(socket_file) as proxy:
        through = address.set(host=proxy.host, port=proxy.port, query={})
        yield proxy, through.render_as_string(hide_password=False)
