"""Streamable HTTP with servers that break its rules: one bad answer is told to its own caller, and costs the others nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.mcp_clients import endpoint_of, open_client, read_text
from tests.support.mcp_server import McpAnswer, McpTestServer
from tests.support.raw_mcp import NOTHING, STREAM, STREAM_END, Exchange, RawMcpServer, chunk, event
from tests.support.waiting import eventually

from holdfast.adapters.mcp import http_posts, http_transport
from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.errors import McpCallLost, McpTimedOut, McpUnavailable

KINDS: dict[str, dict[str, Any]] = {
    "modern": {},
    "handshake": {"generation": "handshake"},
    "sse": {"generation": "handshake", "transport": "sse"},
}
# As gateways answer, which know nothing of JSON-RPC.
GATEWAY_ERRORS = [
    b'{"error":"upstream failed"}',
    b'{"error":{"code":502,"message":"upstream failed","status":"UNAVAILABLE"}}',
    b'{"jsonrpc":"2.0","error":"upstream failed"}',
    b"[" * 100_000,
]


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[McpTestServer]:
    async with McpTestServer(**KINDS[request.param]) as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[PooledMcpClient]:
    async with open_client() as client:
        yield client


def answer_calls_of(server: McpTestServer, tool: str, answer: McpAnswer) -> None:
    server.intercept = lambda request: (
        answer
        if request.rpc_method == "tools/call" and request.message["params"]["name"] == tool
        else None
    )


async def begin_to_wait(server: McpTestServer, client: PooledMcpClient) -> "asyncio.Task[Any]":
    """A call that waits for ``server.release``."""
    task = asyncio.create_task(client.call(endpoint_of(server), "wait", {}))
    await server.wait_for(lambda: server.calls_of("wait"))
    return task


@pytest.mark.parametrize("body", GATEWAY_ERRORS, ids=["text", "code", "version", "nested"])
async def test_a_gateway_that_does_not_know_the_route_has_no_empty_list_of_tools(
    client: PooledMcpClient, body: bytes
) -> None:
    async with McpTestServer() as server:
        endpoint = endpoint_of(server)
        assert await client.list_tools(endpoint)
        server.intercept = lambda request: (
            McpAnswer(404, body) if request.rpc_method == "tools/list" else None
        )
        with pytest.raises(McpUnavailable, match="404 Not Found"):
            await client.list_tools(endpoint)


@pytest.mark.parametrize("body", GATEWAY_ERRORS, ids=["text", "code", "version", "nested"])
@pytest.mark.parametrize(
    ("status", "error"),
    [(403, McpUnavailable), (429, McpUnavailable), (500, McpCallLost), (502, McpCallLost)],
)
async def test_an_error_of_a_gateway_is_told_with_its_status(
    client: PooledMcpClient, status: int, error: type[Exception], body: bytes
) -> None:
    async with McpTestServer() as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        answer_calls_of(server, "echo", McpAnswer(status, body))
        with pytest.raises(error, match=str(status)):
            await client.call(endpoint, "echo", {})


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_error_of_the_server_itself_is_told_in_its_words(
    client: PooledMcpClient, status: int
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        error = {"code": -32602, "message": "Unknown field: session_name", "data": {"at": 1}}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        answer_calls_of(server, "echo", McpAnswer(status, body))
        result = await client.call(endpoint, "echo", {})
        assert (read_text(result), result.is_error) == ("Unknown field: session_name", True)
        assert len(server.requests_of("initialize")) == 1


async def test_a_message_that_is_refused_over_sse_waits_for_no_answer(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake", transport="sse") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        error = {"code": -32602, "message": "no"}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        answer_calls_of(server, "echo", McpAnswer(400, body))
        with pytest.raises(McpUnavailable, match="400 Bad Request"):
            await client.call(endpoint, "echo", {})


@pytest.mark.parametrize("location", ["http://host:none/", "//[::1", "http://:@/", "ftp://host"])
async def test_a_redirect_that_cannot_be_read_leaves_other_calls_alone(
    server: McpTestServer, client: PooledMcpClient, location: str
) -> None:
    waiting = await begin_to_wait(server, client)
    # Over SSE a message is posted elsewhere.
    server.intercept = lambda request: (
        McpAnswer(307, b"", {"location": location}) if request.rpc_method == "tools/call" else None
    )
    with pytest.raises(McpUnavailable, match="307 Temporary Redirect"):
        await client.call(endpoint_of(server), "echo", {})
    server.release()
    assert read_text(await waiting) == "It was released."


async def test_a_redirect_whose_body_breaks_off_leaves_other_calls_alone(
    client: PooledMcpClient,
) -> None:
    is_over = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        if exchange.tool == "other":
            await is_over.wait()
            exchange.succeed("good")
        else:
            exchange.write(b"HTTP/1.1 307 No\r\nlocation: /other\r\ncontent-length: 10\r\n\r\nxxx")
            exchange.close()

    async with RawMcpServer(answer).run() as server:
        other = asyncio.create_task(client.call(server.endpoint, "other", {}))
        with pytest.raises(McpUnavailable, match=r"307 .*: redirect to .* not followed"):
            await client.call(server.endpoint, "bad", {})
        is_over.set()
        assert read_text(await other) == "good"


@pytest.mark.parametrize("value", ["half \ud83d of a pair", float("nan")], ids=["text", "number"])
async def test_an_argument_that_cannot_be_encoded_leaves_other_calls_alone(
    server: McpTestServer, client: PooledMcpClient, value: Any
) -> None:
    waiting = await begin_to_wait(server, client)
    await client.call(endpoint_of(server), "echo", {"text": value, "at": {"depth": [value]}})
    (echo,) = server.calls_of("echo")
    assert echo.arguments["text"] in {"half ? of a pair", None}
    server.release()
    assert read_text(await waiting) == "It was released."


async def test_nothing_is_listened_for_outside_of_calls(client: PooledMcpClient) -> None:
    async with McpTestServer(generation="handshake") as server:
        await client.call(endpoint_of(server), "echo", {})
        await client.list_tools(endpoint_of(server))
        assert [request for request in server.requests if request.method == "GET"] == []


async def answer_with_nothing(exchange: Exchange) -> None:
    """A stream that ends without an answer, and whose rest can be asked for."""
    exchange.write(STREAM + event(None, event_id=1) + STREAM_END)


async def test_the_rest_of_an_answer_is_asked_for_a_limited_number_of_times(
    client: PooledMcpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_posts, "_RESUME_SECONDS", 0.0)
    monkeypatch.setattr(http_posts, "_MAX_RESUMPTIONS", 5)
    async with RawMcpServer(answer_with_nothing, answer_with_nothing).run() as server:
        with pytest.raises(McpCallLost):
            await client.call(server.endpoint, "x", {})
        assert server.gets == 5


async def test_the_rest_of_an_answer_is_not_asked_for_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_posts, "_RESUME_SECONDS", 3600.0)
    async with (
        RawMcpServer(answer_with_nothing, answer_with_nothing).run() as server,
        open_client(call_seconds=0.5) as client,
    ):
        with pytest.raises(McpTimedOut):
            await client.call(server.endpoint, "x", {})
        assert server.gets == 1


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"result": {"content": [{"type": "text", "text": "late"}]}}, "late"),
        ({"error": {"code": -32602, "message": "the server's words"}}, "the server's words"),
    ],
    ids=["result", "error"],
)
async def test_the_rest_of_an_answer_is_what_the_caller_gets(
    client: PooledMcpClient, members: dict[str, Any], text: str
) -> None:
    raw: RawMcpServer

    async def answer_the_rest(exchange: Exchange) -> None:
        message = {"jsonrpc": "2.0", "id": raw.messages[-1]["id"], **members}
        exchange.write(STREAM + event(message, event_id=2) + STREAM_END)

    async with RawMcpServer(answer_with_nothing, answer_the_rest).run() as raw:
        assert read_text(await client.call(raw.endpoint, "x", {})) == text


@pytest.mark.parametrize("after", ["nothing", "headers", "a resumption"])
async def test_a_call_that_took_too_long_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(http_transport, "_SETTLE_SECONDS", 0.01)
    ended: list[str] = []

    async def hang(exchange: Exchange) -> None:
        await exchange.wait_for_end()
        ended.append("call")

    async def answer(exchange: Exchange) -> None:
        if after == "headers":
            exchange.write(STREAM)
        if after == "a resumption":
            await answer_with_nothing(exchange)
        else:
            await hang(exchange)

    async with (
        RawMcpServer(answer, hang).run() as server,
        open_client(call_seconds=0.3) as client,
    ):
        with pytest.raises(McpTimedOut):
            await client.call(server.endpoint, "x", {})
        await eventually(lambda: ended == ["call"])


PINGS = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(5)]


async def test_a_server_that_takes_no_answers_to_its_pings_delays_no_other_call(
    client: PooledMcpClient,
) -> None:
    answered = asyncio.Event()
    given_up: list[Any] = []

    async def answer(exchange: Exchange) -> None:
        if exchange.tool == "pinging":
            exchange.write(STREAM + b"".join(map(event, PINGS)))
            await exchange.wait_for_end()
        else:
            exchange.succeed(f"{len(given_up)} given up")

    async def take_slowly(exchange: Exchange) -> None:
        answered.set()
        await exchange.wait_for_end()
        given_up.append(exchange.message)

    async with RawMcpServer(answer, on_answer=take_slowly).run() as server:
        pinging = asyncio.create_task(client.call(server.endpoint, "pinging", {}))
        await answered.wait()
        result = await client.call(server.endpoint, "other", {})
        assert read_text(result) == "0 given up"
        pinging.cancel()


async def test_a_server_that_pings_without_end_does_not_fill_the_memory() -> None:
    # More than may wait for their answers, in one answer that is too large in the end.
    pings = chunk(b"".join(b"data: %b\n\n" % json.dumps(ping).encode() for ping in PINGS * 200))
    most_tasks = 0

    async def answer(exchange: Exchange) -> None:
        exchange.write(STREAM + pings * 10)
        await exchange.wait_for_end()

    async def take(exchange: Exchange) -> None:
        nonlocal most_tasks
        most_tasks = max(most_tasks, len(asyncio.all_tasks()))
        exchange.write(NOTHING)

    async with (
        RawMcpServer(answer, on_answer=take).run() as server,
        open_client(max_result_bytes=8 * len(pings)) as client,
    ):
        result = await client.call(server.endpoint, "x", {})
        assert "larger than" in read_text(result)
        assert 0 < most_tasks < 500
