"""The client of MCP servers, against real servers of both generations over each transport."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_clients import (
    cancel,
    endpoint_of,
    open_client,
    read_text,
    stdio_endpoint,
)
from tests.support.mcp_server import McpTestServer
from tests.support.mcp_tools import MEGABYTE, PNG
from tests.support.waiting import eventually

from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.core.mcp_servers import Endpoint
from holdfast.core.messages import Image, Text
from holdfast.ports.mcp import ToolProgress

KINDS: dict[str, dict[str, Any]] = {
    "modern": {},
    "modern-json": {"json_response": True},
    "handshake": {"generation": "handshake"},
    "handshake-json": {"generation": "handshake", "json_response": True},
    "handshake-stateless": {"generation": "handshake", "stateless": True},
    "sse": {"generation": "handshake", "transport": "sse"},
}


@pytest.fixture(params=KINDS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[McpTestServer]:
    async with McpTestServer(**KINDS[request.param]) as server:
        yield server


@pytest.fixture(params=["modern", "handshake"])
async def stateful(request: pytest.FixtureRequest) -> AsyncIterator[McpTestServer]:
    """Streamable HTTP of each generation."""
    async with McpTestServer(generation=request.param) as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[PooledMcpClient]:
    async with open_client() as client:
        yield client


async def test_the_tools_are_listed_as_the_server_gives_them(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    tools = {tool.name: tool for tool in await client.list_tools(endpoint_of(server))}
    assert [*tools] == [*server.tools]
    add = tools["add"]
    assert add.description == "Add."
    assert add.input_schema["required"] == ["a", "b"]
    assert add.is_read_only
    assert tools["crash"].is_destructive
    assert add.listing["inputSchema"] == add.input_schema


async def test_all_pages_of_a_list_are_read(server: McpTestServer, client: PooledMcpClient) -> None:
    server.tools.clear()
    server.page_size = 40
    for number in range(500):
        server.add_tool(f"tool_{number}")
    assert len(await client.list_tools(endpoint_of(server))) == 500


async def test_tools_that_were_added_meanwhile_are_listed(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    before = await client.list_tools(endpoint_of(server))
    server.add_tool("new")
    assert len(await client.list_tools(endpoint_of(server))) == len(before) + 1


async def test_a_call_returns_what_the_tool_returns(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    result = await client.call(endpoint_of(server), "add", {"a": 2, "b": 3})
    assert read_text(result) == "5"
    assert not result.is_error
    assert server.calls[-1].arguments == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("texts", "one two three"),
        ("nothing", "Empty response from tool"),
        ("structured", '{"degrees":21,"sky":"blue"}'),
        ("document", "A note."),
        ("sound", f"[audio audio/wav, {len(PNG)} bytes]"),
        ("link", "note://2 (Second note)"),
    ],
)
async def test_each_kind_of_content_becomes_text(
    stateful: McpTestServer, client: PooledMcpClient, tool: str, text: str
) -> None:
    assert read_text(await client.call(endpoint_of(stateful), tool, {})) == text


async def test_a_picture_stays_a_picture(stateful: McpTestServer, client: PooledMcpClient) -> None:
    result = await client.call(endpoint_of(stateful), "picture", {})
    assert result.content == (Image(media_type="image/png", data=base64.b64encode(PNG).decode()),)


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("fail", {"message": "No rain."}, "No rain."),
        ("crash", {}, "The server has no more paper."),
        ("unknown", {}, "Unknown tool: unknown"),
    ],
)
async def test_an_error_of_a_tool_is_a_result_with_the_words_of_the_server(
    server: McpTestServer,
    client: PooledMcpClient,
    tool: str,
    arguments: dict[str, str],
    text: str,
) -> None:
    result = await client.call(endpoint_of(server), tool, arguments)
    assert (read_text(result), result.is_error) == (text, True)


async def test_a_tool_that_asks_for_input_is_told_that_nobody_answers(
    stateful: McpTestServer, client: PooledMcpClient
) -> None:
    result = await client.call(endpoint_of(stateful), "ask", {})
    assert result.is_error
    assert "not support" in read_text(result)


async def test_progress_is_passed_on_in_its_order(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    if server.json_response:
        pytest.skip("a JSON answer has no room for progress")
    seen: list[ToolProgress] = []
    result = await client.call(endpoint_of(server), "count", {"steps": 3}, seen.append)
    assert read_text(result) == "3 steps"
    assert seen == [ToolProgress(step, 3, f"step {step}") for step in (1, 2, 3)]


async def test_a_result_of_ten_megabytes_arrives(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    result = await client.call(endpoint_of(server), "large", {"megabytes": 10})
    assert len(read_text(result)) == 10 * MEGABYTE


async def test_the_headers_of_the_endpoint_and_the_agent_are_sent(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    headers = (("Authorization", "Bearer t"), ("X-Team", "blue"))
    await client.call(endpoint_of(server, headers=headers, agent_id="agent-1"), "echo", {})
    assert server.requests
    for request in server.requests:
        assert request.headers["authorization"] == "Bearer t"
        assert request.headers["x-team"] == "blue"
        assert request.headers["x-agent-id"] == "agent-1"


async def test_no_agent_is_named_if_there_is_none(
    stateful: McpTestServer, client: PooledMcpClient
) -> None:
    await client.call(endpoint_of(stateful), "echo", {})
    assert all("x-agent-id" not in request.headers for request in stateful.requests)


async def test_calls_with_equal_endpoints_share_a_session_and_a_connection(
    client: PooledMcpClient,
) -> None:
    async with McpTestServer(generation="handshake") as server:
        for _ in range(20):
            await client.call(endpoint_of(server), "echo", {})
        assert len(server.requests_of("initialize")) == 1
        # One for the calls, one that is kept for what the server may send, and one that began it.
        assert server.open_connections <= 3


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
async def test_a_cancelled_call_is_cancelled_at_the_server_in_the_way_of_its_protocol(
    client: PooledMcpClient, kind: str
) -> None:
    async with McpTestServer(**KINDS[kind]) as server:
        endpoint = endpoint_of(server)
        other = asyncio.create_task(client.call(endpoint, "wait", {"name": "other"}))
        task = asyncio.create_task(client.call(endpoint, "wait", {"name": "mine"}))
        await server.wait_for(lambda: len(server.calls_of("wait")) == 2)
        await cancel(task)
        (mine,) = [call for call in server.calls_of("wait") if call.arguments["name"] == "mine"]
        await mine.ended.wait()
        assert mine.cancelled_by == ("stream" if kind == "modern" else "notification")
        server.release("other")
        assert read_text(await other) == "It was released."
        assert read_text(await client.call(endpoint, "echo", {"text": "on"})) == "on"


async def test_a_caller_that_is_cancelled_does_not_wait_for_a_server_that_hangs(
    stateful: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(stateful)
    task = asyncio.create_task(client.call(endpoint, "wait", {}))
    await stateful.wait_for(lambda: stateful.calls_of("wait"))
    stateful.hold()
    task.cancel()
    # One turn of the loop passes the cancellation on; nothing else may be waited for.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert task.cancelled()


async def test_a_hundred_calls_with_random_cancels_do_not_touch_each_other(
    server: McpTestServer, client: PooledMcpClient
) -> None:
    endpoint = endpoint_of(server)
    await client.call(endpoint, "echo", {})
    tasks = [
        asyncio.create_task(client.call(endpoint, "wait", {"name": str(number)}))
        for number in range(100)
    ]
    await server.wait_for(lambda: len(server.calls_of("wait")) == 100)
    cancelled = [number for number in range(100) if number * 7 % 10 < 4]
    for number in cancelled:
        tasks[number].cancel()
    calls = {int(call.arguments["name"]): call for call in server.calls_of("wait")}
    if not server.stateless and not (server.json_response and server.generation == "modern"):
        # The SDK's server does not see a cancel that comes to a stateless session, nor a client that goes before its
        # JSON answer.
        for number in cancelled:
            await calls[number].ended.wait()
            assert calls[number].is_cancelled
    for number in range(100):
        server.release(str(number))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(results):
        if number in cancelled:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert not isinstance(result, BaseException)
            assert result.content == (Text("It was released."),)


Run = Callable[[PooledMcpClient, Endpoint, Path], Awaitable[None]]


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["modern", "handshake"])
async def test_a_server_over_stdio_is_used_like_the_others(
    client: PooledMcpClient, tmp_path: Path, generation: str
) -> None:
    endpoint = stdio_endpoint(tmp_path, "--generation", generation)
    assert "echo" in {tool.name for tool in await client.list_tools(endpoint)}
    first = read_text(await client.call(endpoint, "pid", {}))
    seen: list[ToolProgress] = []
    await client.call(endpoint, "count", {"steps": 2}, seen.append)
    assert len(seen) == 2
    task = asyncio.create_task(client.call(endpoint, "wait", {"name": "x"}))
    events = tmp_path / "events.jsonl"
    await eventually(lambda: '"wait"' in events.read_text())
    await cancel(task)
    await eventually(lambda: '"cancelled"' in events.read_text())
    large = await client.call(endpoint, "large", {"megabytes": 10})
    assert len(read_text(large)) == 10 * MEGABYTE
    assert read_text(await client.call(endpoint, "pid", {})) == first
