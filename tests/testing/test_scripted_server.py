"""HTTP as it comes: bodies of either framing, kept and closed connections, nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from holdfast.testing import Answer, Gate, ScriptedProvider, server

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

BODY = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": "hi"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
ASK = HEAD + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest.fixture
async def connection(provider: ScriptedProvider) -> AsyncIterator[Connection]:
    host, port = provider.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield reader, writer
    writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, await reader.readexactly(length)


async def test_one_connection_serves_many_requests(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    provider.script("One.", "Two.")
    for expected in ("One.", "Two."):
        writer.write(ASK)
        _, body = await read_answer(reader)
        assert json.loads(body)["choices"][0]["message"]["content"] == expected


async def test_a_chunked_body_is_understood(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    for piece in (BODY[:10], BODY[10:]):
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    writer.write(b"0\r\n\r\n")
    head, _ = await read_answer(reader)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert provider.requests[0].user_text == "hi"


async def test_requests_sent_ahead_are_answered_in_their_order(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    gate = Gate()
    provider.script(Answer("One.", gate), "Two.")
    writer.write(ASK + ASK)
    await gate.reached.wait()
    assert len(provider.requests) == 1
    gate.release()
    for expected in (b'"One."', b'"Two."'):
        assert expected in (await read_answer(reader))[1]


async def test_a_client_that_wants_to_close_is_closed(connection: Connection) -> None:
    reader, writer = connection
    writer.write(ASK.replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n"))
    await read_answer(reader)
    async with asyncio.timeout(10):
        assert await reader.read() == b""


async def test_an_unknown_path_is_not_found(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    writer.write(b"GET /v1/nothing HTTP/1.1\r\nhost: x\r\n\r\n")
    head, body = await read_answer(reader)
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert json.loads(body)["error"]["message"] == "Invalid URL (GET /v1/nothing)"
    assert provider.requests == []


@pytest.mark.parametrize(
    "body", [b"{not json", b"[]", b'{"model": "gpt", "messages": [1]}'], ids=bytes.decode
)
async def test_a_body_that_is_no_request_is_refused(
    provider: ScriptedProvider, connection: Connection, body: bytes
) -> None:
    reader, writer = connection
    writer.write(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    head, answer = await read_answer(reader)
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(answer)["error"]["message"] == provider.requests[0].refused


async def test_a_request_that_is_not_http_is_refused(connection: Connection) -> None:
    reader, writer = connection
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


async def test_a_body_beyond_the_limit_is_refused(
    provider: ScriptedProvider, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BODY_BYTES", len(BODY) - 1)
    reader, writer = connection
    writer.write(ASK)
    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")
    assert provider.requests == []


async def test_a_large_answer_to_a_slow_reader_is_not_finished_until_it_has_left(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    provider.script("x" * 20_000_000)
    writer.write(ASK)
    request = await provider.wait_for_request()
    await reader.readuntil(b"\r\n\r\n")
    assert not request.finished.happened
    writer.transport.abort()
    await request.finished.wait(10)
    assert request.closed_early


async def test_a_large_answer_arrives_whole(
    provider: ScriptedProvider, connection: Connection
) -> None:
    reader, writer = connection
    provider.script("x" * 20_000_000)
    writer.write(ASK)
    _, body = await read_answer(reader)
    assert len(json.loads(body)["choices"][0]["message"]["content"]) == 20_000_000
    assert not provider.requests[0].closed_early
    await provider.requests[0].finished.wait(10)
