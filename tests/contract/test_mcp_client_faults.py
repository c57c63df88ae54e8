"""MCP servers that fail: what callers learn, what is repeated, and that the next call works again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_clients import endpoint_of, open_client, read_text, stdio_endpoint
from tests.support.mcp_server import McpAnswer, McpRequest, McpTestServer

from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.errors import McpCallLost, McpTimedOut, McpUnauthorized, McpUnavailable

KINDS: dict[str, dict[str, Any]] = {
    "modern": {},
    "handshake": {"generation": "handshake"},
    "sse": {"generation": "handshake", "transport": "sse"},
}


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[McpTestServer]:
    async with McpTestServer(**KINDS[request.param]) as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[PooledMcpClient]:
    async with open_client() as client:
        yield client


async def test_a_server_that_restarts_between_calls_is_used_again(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(server)
    for text in ("one", "two", "three"):
        assert read_text(await client.call(endpoint, "echo", {"text": text})) == text
        await asyncio.to_thread(server.restart)
    assert [call.arguments["text"] for call in server.calls_of("echo")] == ["one", "two", "three"]


async def test_a_server_that_forgets_its_sessions_gets_the_call_once_on_a_new_one(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {"text": "before"})
        # The connection stays, and only the session is gone.
        refused: list[McpRequest] = []

        def forget(request: McpRequest) -> McpAnswer | None:
            if request.rpc_method == "tools/call" and not refused:
                refused.append(request)
                error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
                return McpAnswer(404, error)
            return None

        server.intercept = forget
        assert read_text(await client.call(endpoint, "echo", {"text": "after"})) == "after"
        assert len(refused) == 1
        assert len(server.requests_of("initialize")) == 2


async def test_a_refusal_that_names_the_session_opens_a_new_one(client: PooledMcpClient) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {"text": "before"})
        answers = [McpAnswer(400, b"Bad Request: No valid session ID provided")]
        server.intercept = lambda request: (
            answers.pop() if answers and request.rpc_method == "tools/call" else None
        )
        assert read_text(await client.call(endpoint, "echo", {"text": "after"})) == "after"


async def test_a_call_whose_server_dies_is_lost_and_never_repeated(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(server)
    task = asyncio.create_task(client.call(endpoint, "wait", {}))
    await server.wait_for(lambda: server.calls_of("wait"))
    await asyncio.to_thread(server.kill)
    with pytest.raises(McpCallLost):
        await task
    await asyncio.to_thread(server.start)
    assert read_text(await client.call(endpoint, "echo", {"text": "on"})) == "on"
    assert len(server.calls_of("wait")) == 1


async def test_a_server_that_is_not_there_is_named_with_its_url(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    await asyncio.to_thread(server.stop)
    with pytest.raises(McpUnavailable) as caught:
        await client.call(endpoint_of(server), "echo", {})
    assert caught.value.why.startswith(
        f"Failed to connect to MCP server at '{server.url}'. Please check your configuration and ensure the server is"
        " accessible. Error: "
    )


async def test_a_server_that_comes_back_is_connected_to_again(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(server)
    await asyncio.to_thread(server.stop)
    for _ in range(3):
        with pytest.raises(McpUnavailable):
            await client.call(endpoint, "echo", {})
    await asyncio.to_thread(server.start)
    assert read_text(await client.call(endpoint, "echo", {"text": "back"})) == "back"


async def test_a_call_that_cannot_wait_for_the_next_attempt_fails_with_the_last_error() -> None:
    async with McpTestServer() as server, open_client(connect_seconds=0.4) as client:
        endpoint = endpoint_of(server)
        await asyncio.to_thread(server.stop)
        with pytest.raises(McpUnavailable):
            await client.call(endpoint, "echo", {})
        with pytest.raises(McpUnavailable):
            await client.call(endpoint, "echo", {})
        # The third attempt comes after half a second. By then the server is there, but nobody asks it.
        await asyncio.to_thread(server.start)
        with pytest.raises(McpUnavailable, match="Connect call failed"):
            await client.call(endpoint, "echo", {})
        assert server.requests == []


async def test_a_server_that_never_answers_times_out_while_connecting() -> None:
    async with McpTestServer() as server, open_client(connect_seconds=0.3) as client:
        server.hold()
        with pytest.raises(McpTimedOut) as caught:
            await client.list_tools(endpoint_of(server))
        assert str(caught.value) == (
            "Timed out while connecting for MCP server weather (timeout=0.3s)."
        )
        assert not caught.value.has_begun


async def test_a_list_that_never_comes_times_out_while_listing(server: McpTestServer) -> None:
    async with open_client(list_seconds=0.3) as client:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        server.intercept = lambda request: (
            McpAnswer(hold=True) if request.rpc_method == "tools/list" else None
        )
        with pytest.raises(McpTimedOut) as caught:
            await client.list_tools(endpoint)
        assert "while listing tools for MCP server weather (timeout=0.3s)" in str(caught.value)
        server.answer()
        assert await client.list_tools(endpoint)


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(server: McpTestServer) -> None:
    async with open_client(call_seconds=0.5) as client:
        endpoint = endpoint_of(server)
        with pytest.raises(McpTimedOut) as caught:
            await client.call(endpoint, "wait", {})
        assert str(caught.value) == (
            "Timed out while executing tool wait for MCP server weather (timeout=0.5s)."
        )
        assert caught.value.has_begun
        (call,) = server.calls_of("wait")
        await call.ended.wait()
        assert call.is_cancelled
        assert read_text(await client.call(endpoint, "echo", {"text": "on"})) == "on"


async def test_a_server_that_is_slow_to_connect_is_waited_for(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(server)
    server.hold()
    task = asyncio.create_task(client.call(endpoint, "echo", {"text": "late"}))
    await server.wait_for(lambda: server.requests)
    server.answer()
    # The held request is never answered; the SDK asks in the older way after ten seconds, and SSE does not.
    if server.transport == "sse":
        await asyncio.to_thread(server.kill)
        with pytest.raises(McpUnavailable):
            await task
    else:
        assert read_text(await task) == "late"


async def test_a_missing_token_is_told_with_the_challenge_of_the_server(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    server.token = "right"
    with pytest.raises(McpUnauthorized) as caught:
        await client.call(endpoint_of(server), "echo", {})
    assert caught.value.challenge == server.challenge
    assert caught.value.why == "401 Unauthorized"
    right = endpoint_of(server, headers=(("Authorization", "Bearer right"),))
    assert read_text(await client.call(right, "echo", {"text": "in"})) == "in"


async def test_a_token_that_ends_during_a_session_is_told_too(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    server.token = "old"
    old = endpoint_of(server, headers=(("Authorization", "Bearer old"),))
    await client.call(old, "echo", {})
    server.token = "new"
    with pytest.raises(McpUnauthorized) as caught:
        await client.call(old, "echo", {})
    assert caught.value.challenge == server.challenge
    new = endpoint_of(server, headers=(("Authorization", "Bearer new"),))
    assert read_text(await client.call(new, "echo", {"text": "in"})) == "in"


@pytest.mark.parametrize(
    "answer",
    [
        McpAnswer(200, b"<html>Welcome</html>", {"content-type": "text/html"}),
        McpAnswer(200, b"{not json"),
        McpAnswer(200, b'{"jsonrpc":"2.0","id":1,"result":7}'),
        McpAnswer(200, b"data: nonsense\n\n", {"content-type": "text/event-stream"}),
        McpAnswer(200, b"", {"content-type": "text/event-stream"}),
        McpAnswer(202),
        McpAnswer(500, b"oops"),
        McpAnswer(404, b"Not Found"),
        McpAnswer(
            200, b"\x1f\x8b", {"content-type": "application/json", "content-encoding": "gzip"}
        ),
    ],
    ids=["html", "half json", "no object", "no event", "empty stream", "202", "500", "404", "gzip"],
)
async def test_a_server_that_answers_with_garbage_cannot_be_connected_to(
    client: PooledMcpClient, answer: McpAnswer
) -> None:
    async with McpTestServer() as server:
        server.intercept = lambda request: answer
        with pytest.raises(McpUnavailable):
            await client.list_tools(endpoint_of(server))
        server.answer()
        assert await client.list_tools(endpoint_of(server))


@pytest.mark.parametrize("status", [500, 502])
async def test_an_error_of_the_server_leaves_open_what_the_call_did(
    client: PooledMcpClient, status: int
) -> None:
    async with McpTestServer() as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        server.intercept = lambda request: McpAnswer(status, b"oops")
        with pytest.raises(McpCallLost):
            await client.call(endpoint, "echo", {})


@pytest.mark.parametrize("status", [403, 404, 429, 503])
async def test_a_call_that_the_server_refuses_has_not_begun(
    client: PooledMcpClient, status: int
) -> None:
    async with McpTestServer() as server:
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        server.intercept = lambda request: McpAnswer(status, b"no")
        with pytest.raises(McpUnavailable) as caught:
            await client.call(endpoint, "echo", {})
        assert caught.value.why.startswith(
            f"HTTP error connecting to MCP server at {server.url}: {status} "
        )


async def test_garbage_in_one_answer_leaves_the_others_alone(client: PooledMcpClient) -> None:
    async with McpTestServer(generation="handshake") as server:
        endpoint = endpoint_of(server)
        other = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        server.intercept = lambda request: (
            McpAnswer(200, b"{") if request.rpc_method == "tools/call" else None
        )
        with pytest.raises(McpCallLost):
            await client.call(endpoint, "echo", {})
        server.release()
        assert read_text(await other) == "It was released."


async def test_a_result_that_is_too_large_is_an_error_of_that_call_alone(
    server: McpTestServer,
) -> None:
    async with open_client(max_result_bytes=2 * 1024 * 1024) as client:
        endpoint = endpoint_of(server)
        if server.transport == "sse":
            # All answers come on one stream, which cannot be read on after it.
            with pytest.raises(McpCallLost, match="2097152 byte"):
                await client.call(endpoint, "large", {"megabytes": 3})
        else:
            result = await client.call(endpoint, "large", {"megabytes": 3})
            assert result.is_error
            assert read_text(result) == "The answer is larger than 2097152 bytes."
        assert read_text(await client.call(endpoint, "echo", {"text": "on"})) == "on"


class Suspensions:
    """How long a machine was suspended, as the test says."""

    seconds = 0.0

    def read(self) -> float:
        return self.seconds


async def test_after_a_machine_was_suspended_the_session_is_opened_again() -> None:
    machine = Suspensions()
    async with (
        McpTestServer(generation="handshake") as server,
        open_client(read_suspended_seconds=machine.read) as client,
    ):
        endpoint = endpoint_of(server)
        await client.call(endpoint, "echo", {})
        await client.call(endpoint, "echo", {})
        assert len(server.requests_of("initialize")) == 1
        machine.seconds += 3600
        assert read_text(await client.call(endpoint, "echo", {"text": "morning"})) == "morning"
        assert len(server.requests_of("initialize")) == 2


async def test_a_call_that_survives_a_suspension_gets_its_answer(server: McpTestServer) -> None:
    machine = Suspensions()
    async with open_client(read_suspended_seconds=machine.read) as client:
        endpoint = endpoint_of(server)
        waiting = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        machine.seconds += 3600
        assert read_text(await client.call(endpoint, "echo", {"text": "morning"})) == "morning"
        server.release()
        assert read_text(await waiting) == "It was released."


async def test_closing_the_client_takes_a_bounded_time_while_the_server_hangs(
    server: McpTestServer,
) -> None:
    async with open_client() as client:
        endpoint = endpoint_of(server)
        task = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        server.hold()
        await client.aclose()
        with pytest.raises(McpCallLost):
            await task
        with pytest.raises(McpUnavailable):
            await client.call(endpoint, "echo", {})


async def test_closing_the_client_ends_a_connect_that_hangs() -> None:
    async with McpTestServer() as server, open_client() as client:
        server.hold()
        task = asyncio.create_task(client.call(endpoint_of(server), "echo", {}))
        await server.wait_for(lambda: server.requests)
        await client.aclose()
        with pytest.raises(McpUnavailable):
            await task


@pytest.mark.slow
async def test_a_process_that_dies_in_mid_call_is_started_again(
    client: PooledMcpClient, tmp_path: Path
) -> None:
    endpoint = stdio_endpoint(tmp_path)
    first = read_text(await client.call(endpoint, "pid", {}))
    with pytest.raises(McpCallLost):
        await client.call(endpoint, "die", {})
    assert read_text(await client.call(endpoint, "pid", {})) != first


@pytest.mark.slow
async def test_a_process_that_prints_garbage_is_used_all_the_same(
    client: PooledMcpClient, tmp_path: Path
) -> None:
    endpoint = stdio_endpoint(tmp_path, "--garbage")
    assert read_text(await client.call(endpoint, "echo", {"text": "clean"})) == "clean"


async def test_a_command_that_does_not_exist_is_named(
    client: PooledMcpClient, tmp_path: Path
) -> None:
    endpoint = stdio_endpoint(tmp_path)
    missing = type(endpoint)(
        server_id="mcp_server-3",
        server_name="missing",
        transport=endpoint.transport,
        command="/no/such/program",
    )
    with pytest.raises(McpUnavailable) as caught:
        await client.list_tools(missing)
    assert caught.value.why == (
        "Failed to connect to MCP command '/no/such/program'. Please check your configuration and ensure the server is"
        " accessible. Error: [Errno 2] No such file or directory: '/no/such/program'"
    )
