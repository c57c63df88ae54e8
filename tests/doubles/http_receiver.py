"""An HTTP server that records what it receives and answers what a test has set."""

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from tests.support.waiting import WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class CannedResponse:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"


class Receiver:
    # For tests that have no loop: see ``receiving_in_thread``.
    loop: asyncio.AbstractEventLoop

    """Answers in turn, the last one for ever. None: it hears the request and never answers."""

    def __init__(self) -> None:
        self.answers: list[CannedResponse | None] = [CannedResponse()]
        self.all_requests: list[ReceivedRequest] = []
        self.host = "127.0.0.1"
        self.port = 0
        self._fresh: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self._hanging: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def next_request(self) -> ReceivedRequest:
        """The next request that no test has taken yet."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._fresh.get()

    def wait(self) -> ReceivedRequest:
        """``next_request`` for a test without a loop."""
        return asyncio.run_coroutine_threadsafe(self.next_request(), self.loop).result(WAIT_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._hanging.add(task)
            task.add_done_callback(self._hanging.discard)
        try:
            await self._answer(await _request(reader), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def hang_up(self) -> None:
        for task in self._hanging:
            task.cancel()

    async def _answer(
        self, request: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        response = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.all_requests.append(request)
        self._fresh.put_nowait(request)
        if response is None:
            await reader.read()
            return
        head = {"content-length": str(len(response.body)), "connection": "close"} | response.headers
        lines = [f"HTTP/1.1 {response.status} Such", *(f"{name}: {head[name]}" for name in head)]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + response.body)
        await writer.drain()


async def _request(reader: asyncio.StreamReader) -> ReceivedRequest:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, target, headers, body)


@asynccontextmanager
async def run_receiver(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, receiver.host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()
    receiver.hang_up()


@contextmanager
def run_receiver_in_thread(port: int = 0) -> Iterator[Receiver]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opened = run_receiver(port)
    receiver = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result(WAIT_SECONDS)
    receiver.loop = loop
    try:
        yield receiver
    finally:
        closing = asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop)
        closing.result(WAIT_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_SECONDS)
        loop.close()
