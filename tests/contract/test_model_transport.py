"""Connections to providers: kept open, reused, and replaced when the provider has closed one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from holdfast.adapters.models.transport import StreamTransport

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers the first request of each connection; the test decides what happens at the next one."""

    def __init__(self, then: bytes) -> None:
        self._then = then
        self.connections = 0
        self.url = ""

    @asynccontextmanager
    async def run(self) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._then)
        writer.close()


async def test_a_connection_is_used_again() -> None:
    async with Server(ANSWER).run() as server, client() as http:
        answers = [(await http.get(server.url)).text for _ in range(2)]
    assert answers == ["ok", "ok"]
    assert server.connections == 1


async def test_a_connection_that_the_provider_closed_is_replaced() -> None:
    """The connection looked open when it was reused, and was closed before a byte of the response came."""
    async with Server(b"").run() as server, client() as http:
        answers = [(await http.get(server.url)).text for _ in range(2)]
    assert answers == ["ok", "ok"]
    assert server.connections == 2


async def test_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    async with Server(b"HTTP/1.1 200 OK\r\n").run() as server, client() as http:
        await http.get(server.url)
        with pytest.raises(httpx2.RemoteProtocolError):
            await http.get(server.url)
    assert server.connections == 1


@pytest.mark.parametrize("trailer", [b"X-A: " + b"a" * 8000 + b"\r\n", b"a" * 8000])
async def test_trailers_that_never_end_are_refused(trailer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-B: ")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(trailer)
                await writer.drain()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, client() as http:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with asyncio.timeout(60):
            with pytest.raises(httpx2.RemoteProtocolError, match="headers never end"):
                await http.get(url)


async def test_a_body_may_be_longer_than_headers_in_any_number_of_pieces() -> None:
    body = b"1\r\nx\r\n" * 200_000
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    async with Server(answer).run() as server, client() as http:
        await http.get(server.url)
        assert len((await http.get(server.url)).content) == 200_000


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=StreamTransport(None))
