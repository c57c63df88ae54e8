"""The sessions of a connection: when a new one is opened, what becomes of the calls on the old one, and when it is waited."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse
from tests.support.mcp_clients import endpoint_of, mcp_tasks, open_client, read_text
from tests.support.mcp_server import McpAnswer, McpRequest, McpTestServer
from tests.support.raw_mcp import (
    SESSION,
    Exchange,
    RawMcpServer,
    RawSseServer,
    Receiver,
    Sender,
    SseStream,
    open_in_memory,
)
from tests.support.waiting import eventually

from holdfast.adapters.mcp import watched_streams
from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.errors import McpCallLost, McpError, McpTimedOut, McpUnavailable

IN_MEMORY = Endpoint(
    server_id="mcp_server-1", server_name="memory", transport=Transport.STDIO, command="x"
)


@pytest.fixture
async def client() -> AsyncIterator[PooledMcpClient]:
    async with open_client() as client:
        yield client


def refuse_once(server: McpTestServer, answer: McpAnswer) -> None:
    """The next call gets this answer."""
    answers = [answer]

    def refuse(request: McpRequest) -> McpAnswer | None:
        return answers.pop() if answers and request.rpc_method == "tools/call" else None

    server.intercept = refuse


async def test_calls_on_a_session_that_the_server_forgets_keep_their_answers(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        waiting = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        refuse_once(server, McpAnswer(404, b"Session not found"))
        assert read_text(await client.call(endpoint, "echo", {"text": "new"})) == "new"
        assert len(server.requests_of("initialize")) == 2
        server.release()
        assert read_text(await waiting) == "It was released."
        # Now nothing keeps the old session.
        await eventually(lambda: len(end_requests(server)) == 1)
        assert read_text(await client.call(endpoint, "echo", {"text": "on"})) == "on"
        assert len(server.requests_of("initialize")) == 2


def end_requests(server: McpTestServer) -> list[McpRequest]:
    return [request for request in server.requests if request.method == "DELETE"]


async def test_closing_the_client_ends_the_calls_on_old_sessions_too(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        waiting = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        refuse_once(server, McpAnswer(404, b"Session not found"))
        await client.call(endpoint, "echo", {})
        await client.aclose()
        with pytest.raises(McpCallLost):
            await waiting
        await eventually(lambda: mcp_tasks() == [])


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":"Unknown field: session_name"}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no session id allowed"}}',
        b"This session of the parliament is over.",
    ],
    ids=["gateway", "invalid parameters", "text"],
)
async def test_a_refusal_about_another_kind_of_session_opens_no_new_one(
    client: PooledMcpClient, body: bytes
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        refuse_once(server, McpAnswer(400, body))
        with suppress(McpUnavailable):
            assert (await client.call(endpoint, "echo", {})).is_error
        await client.call(endpoint, "echo", {})
        assert len(server.requests_of("initialize")) == 1


@pytest.mark.parametrize(
    "error",
    [
        (-32000, "Bad Request: No valid session ID provided"),
        (-32600, "Bad Request: Missing session ID"),
        (-32001, "Gone"),
        (-32000, "Mcp-Session-Id header is required"),
    ],
    ids=lambda error: error[1],
)
async def test_the_usual_words_about_a_forgotten_session_open_a_new_one(
    client: PooledMcpClient, error: tuple[int, str]
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        code, message = error
        answer = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
        refuse_once(server, McpAnswer(400, json.dumps(answer).encode()))
        assert read_text(await client.call(endpoint, "echo", {"text": "new"})) == "new"
        assert len(server.requests_of("initialize")) == 2


async def test_a_server_that_accepts_no_new_connections_finishes_its_calls(
    client: PooledMcpClient,
) -> None:
    calls = 0
    go_on = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        nonlocal calls
        calls += 1
        await go_on.wait()
        exchange.succeed("good")

    async with RawMcpServer(answer).run() as server:
        # One takes the connection of the handshake, the other has one of its own.
        tasks = [asyncio.create_task(client.call(server.endpoint, "x", {})) for _ in range(2)]
        await eventually(lambda: calls == 2)
        server.accept_no_more()
        for _ in range(2):
            with pytest.raises(McpUnavailable):
                await client.call(server.endpoint, "x", {})
        go_on.set()
        assert [read_text(result) for result in await asyncio.gather(*tasks)] == ["good"] * 2


async def answer_calls(sender: Sender, receiver: Receiver) -> None:
    async for item in receiver:
        if isinstance(item.message, JSONRPCRequest):
            result = {"content": [{"type": "text", "text": "good"}]}
            answer = JSONRPCResponse(jsonrpc="2.0", id=item.message.id, result=result)
            await sender.send(SessionMessage(answer))


async def test_calls_whose_session_breaks_are_lost_and_not_failed() -> None:
    sessions = 0

    async def break_once(sender: Sender, receiver: Receiver) -> None:
        nonlocal sessions
        sessions += 1
        if sessions == 1:
            await receiver.receive()
            raise RuntimeError
        await answer_calls(sender, receiver)

    async with open_client(open_stdio=open_in_memory(break_once)) as client:
        with pytest.raises(McpCallLost):
            await client.call(IN_MEMORY, "x", {})
        assert read_text(await client.call(IN_MEMORY, "x", {})) == "good"


async def test_a_server_that_asks_and_reads_no_answers_loses_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watched_streams, "_OWED_SECONDS", 0.1)
    sent = 0

    async def ask(sender: Sender, receiver: Receiver) -> None:
        nonlocal sent
        await receiver.receive()
        while True:
            ping = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
            await sender.send(SessionMessage(ping))
            sent += 1

    async with open_client(open_stdio=open_in_memory(ask)) as client:
        with pytest.raises(McpCallLost, match="asks, and does not read the answers"):
            await client.call(IN_MEMORY, "x", {})
        assert sent < 200


async def test_a_server_may_ask_as_often_as_it_likes_if_it_reads_the_answers() -> None:
    async def ask(sender: Sender, receiver: Receiver) -> None:
        call = (await receiver.receive()).message
        assert isinstance(call, JSONRPCRequest)
        for number in range(500):
            ping = JSONRPCRequest(jsonrpc="2.0", id=number, method="ping")
            await sender.send(SessionMessage(ping))
            assert isinstance((await receiver.receive()).message, JSONRPCResponse)
        result = {"content": [{"type": "text", "text": "good"}]}
        answer = JSONRPCResponse(jsonrpc="2.0", id=call.id, result=result)
        await sender.send(SessionMessage(answer))

    async with open_client(open_stdio=open_in_memory(ask)) as client:
        assert read_text(await client.call(IN_MEMORY, "x", {})) == "good"


def shake_hands(message: dict[str, Any], stream: SseStream) -> bool:
    """Whether the message was a part of that."""
    method: str = message["method"]
    if method == "initialize":
        stream.answer(message, result=SESSION)
    elif method != "tools/call" and "id" in message:
        stream.answer(message, error={"code": -32601, "message": "no"})
    return method != "tools/call"


async def test_a_session_that_ends_before_it_is_of_use_is_not_opened_again_without_a_pause() -> (
    None
):
    def end_after_handshake(message: dict[str, Any], stream: SseStream) -> None:
        shake_hands(message, stream)
        if message["method"] == "initialize":
            stream.end()

    async with (
        RawSseServer(end_after_handshake).run() as server,
        open_client(connect_seconds=2.0) as client,
    ):
        with pytest.raises(McpError):
            await client.call(server.endpoint, "x", {})
        # At once, at once, and half a second and a second later.
        assert 1 < len(server.streams) <= 5


async def test_a_session_without_a_word_during_two_calls_is_opened_again() -> None:
    """Like a stream whose other end is gone without a sign: messages arrive, and answers do not."""

    def answer_on_later_streams(message: dict[str, Any], stream: SseStream) -> None:
        if not shake_hands(message, stream) and stream.number > 0:
            stream.answer(message, result={"content": [{"type": "text", "text": "good"}]})

    async with (
        RawSseServer(answer_on_later_streams).run() as server,
        open_client(call_seconds=0.3) as client,
    ):
        for _ in range(2):
            with pytest.raises(McpTimedOut):
                await client.call(server.endpoint, "x", {})
        assert read_text(await client.call(server.endpoint, "x", {})) == "good"
        assert len(server.streams) == 2


async def test_a_server_that_is_replaced_by_one_of_another_generation_is_reached_again(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        await asyncio.to_thread(server.stop)
        server.generation = "modern"
        error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        server.intercept = lambda request: (
            McpAnswer(400, body) if request.rpc_method == "initialize" else None
        )
        await asyncio.to_thread(server.start)
        with pytest.raises(McpUnavailable):
            await client.call(endpoint, "echo", {})
        assert read_text(await client.call(endpoint, "echo", {"text": "new"})) == "new"
