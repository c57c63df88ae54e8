"""Which calls share a connection to an MCP server, when connections are closed, and that nothing of them is left."""

import asyncio
import gc
import os
import threading
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from msgspec.structs import replace
from tests.support.mcp_clients import (
    PATIENCE_SECONDS,
    cancel,
    endpoint_of,
    mcp_tasks,
    open_client,
    read_text,
    stdio_endpoint,
)
from tests.support.mcp_server import McpRequest, McpTestServer
from tests.support.waiting import eventually

from holdfast.adapters.mcp.client import PooledMcpClient
from holdfast.errors import McpTimedOut


async def count_sessions(server: McpTestServer) -> int:
    return len(server.requests_of("initialize"))


async def test_agents_do_not_share_a_connection() -> None:
    async with McpTestServer(generation="handshake") as server, open_client() as client:
        for agent in ("agent-1", "agent-2", "agent-1", None):
            await client.call(endpoint_of(server, agent_id=agent), "echo", {})
        assert await count_sessions(server) == 3
        sessions = {
            (request.headers["mcp-session-id"], request.headers.get("x-agent-id"))
            for request in server.requests_of("tools/call")
        }
        assert len(sessions) == 3


async def test_a_connection_with_older_secrets_is_closed_when_newer_ones_come() -> None:
    async with McpTestServer(generation="handshake") as server, open_client() as client:
        old = endpoint_of(server, headers=(("Authorization", "Bearer old"),))
        new = endpoint_of(server, headers=(("Authorization", "Bearer new"),))
        running = asyncio.create_task(client.call(old, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        await client.call(new, "echo", {})
        # The call in progress goes on, and the connection is closed after it.
        server.release()
        assert read_text(await running) == "It was released."
        await server.wait_for(lambda: [r for r in server.requests if r.method == "DELETE"])
        (ended,) = [request for request in server.requests if request.method == "DELETE"]
        assert ended.headers["authorization"] == "Bearer old"


async def test_users_with_logins_of_their_own_keep_their_connections() -> None:
    async with McpTestServer(generation="handshake") as server, open_client() as client:
        endpoints = [
            endpoint_of(
                server,
                agent_id="agent-1",
                user_id=user,
                headers=(("Authorization", f"Bearer {user}"),),
            )
            for user in ("user-1", "user-2")
        ]
        for _ in range(3):
            for endpoint in endpoints:
                await client.call(endpoint, "echo", {})
        assert await count_sessions(server) == 2
        assert [request for request in server.requests if request.method == "DELETE"] == []
        # A new token is another connection of the same user, and closes the older one of this user alone.
        renewed = replace(endpoints[0], headers=(("Authorization", "Bearer renewed"),))
        await client.call(renewed, "echo", {})
        await server.wait_for(lambda: [r for r in server.requests if r.method == "DELETE"])
        (ended,) = [request for request in server.requests if request.method == "DELETE"]
        assert ended.headers["authorization"] == "Bearer user-1"


async def test_forgetting_a_server_closes_its_connections_and_lets_calls_end() -> None:
    async with McpTestServer(generation="handshake") as server, open_client() as client:
        endpoint = endpoint_of(server)
        running = asyncio.create_task(client.call(endpoint, "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        await client.forget("another")
        await client.forget(endpoint.server_id)
        assert not running.done()
        server.release()
        assert read_text(await running) == "It was released."
        await server.wait_for(lambda: [r for r in server.requests if r.method == "DELETE"])
        await client.call(endpoint, "echo", {})
        assert await count_sessions(server) == 2


async def test_an_idle_connection_is_closed() -> None:
    kept = McpTestServer(generation="handshake")
    async with kept as server, open_client(idle_seconds=0.1) as client:
        await client.call(endpoint_of(server), "echo", {})
        await server.wait_for(lambda: server.open_connections == 0)
        await eventually(lambda: mcp_tasks() == [])
        assert read_text(await client.call(endpoint_of(server), "echo", {"text": "on"})) == "on"


async def test_a_connection_with_a_call_is_not_idle() -> None:
    async with McpTestServer() as server, open_client(idle_seconds=0.05) as client:
        running = asyncio.create_task(client.call(endpoint_of(server), "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        async with McpTestServer() as other:
            # Long enough for the other connection to be closed.
            await client.call(endpoint_of(other, server_id="other"), "echo", {})
            await other.wait_for(lambda: other.open_connections == 0)
        server.release()
        assert read_text(await running) == "It was released."


async def test_the_connection_that_was_idle_longest_makes_room() -> None:
    full = McpTestServer(generation="handshake")
    async with full as server, open_client(max_connections=2) as client:
        for agent in ("a", "b", "a", "c"):
            await client.call(endpoint_of(server, agent_id=agent), "echo", {})
        await server.wait_for(lambda: [r for r in server.requests if r.method == "DELETE"])
        (closed,) = [request for request in server.requests if request.method == "DELETE"]
        assert closed.headers["x-agent-id"] == "b"


async def test_without_an_idle_connection_a_call_waits_for_room() -> None:
    async with McpTestServer() as server, open_client(max_connections=1) as client:
        running = asyncio.create_task(client.call(endpoint_of(server, agent_id="a"), "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        waiting = asyncio.create_task(
            client.call(endpoint_of(server, agent_id="b"), "echo", {"text": "b"})
        )
        server.release()
        assert read_text(await running) == "It was released."
        assert read_text(await waiting) == "b"


async def test_a_call_that_finds_no_room_fails_while_connecting() -> None:
    small = open_client(max_connections=1, connect_seconds=2)
    async with McpTestServer() as server, small as client:
        running = asyncio.create_task(client.call(endpoint_of(server, agent_id="a"), "wait", {}))
        await server.wait_for(lambda: server.calls_of("wait"))
        with pytest.raises(McpTimedOut, match="while connecting"):
            await client.call(endpoint_of(server, agent_id="b"), "echo", {})
        await cancel(running)


async def test_cancelling_the_call_that_connects_leaves_the_connection_to_others() -> None:
    async with McpTestServer() as server, open_client() as client:
        endpoint = endpoint_of(server)
        gate = threading.Event()

        def wait_at_gate(_request: McpRequest) -> None:
            gate.wait(PATIENCE_SECONDS)

        server.intercept = wait_at_gate
        first = asyncio.create_task(client.call(endpoint, "echo", {"text": "first"}))
        second = asyncio.create_task(client.call(endpoint, "echo", {"text": "second"}))
        await server.wait_for(lambda: server.requests)
        await cancel(first)
        gate.set()
        assert read_text(await second) == "second"
        assert [call.arguments["text"] for call in server.calls_of("echo")] == ["second"]


async def test_fifty_servers_with_five_hundred_tools_each_are_listed() -> None:
    async with McpTestServer() as server, open_client() as client:
        server.tools.clear()
        for number in range(500):
            server.add_tool(f"tool_{number}", description="A tool.")
        endpoints = [endpoint_of(server, server_id=f"server-{number}") for number in range(50)]
        lists = await asyncio.gather(*(client.list_tools(endpoint) for endpoint in endpoints))
        assert [len(tools) for tools in lists] == [500] * 50


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


async def open_call_close(client: PooledMcpClient, server: McpTestServer, times: int) -> None:
    for number in range(times):
        endpoint = endpoint_of(server)
        if number % 5 == 4:
            task = asyncio.create_task(client.call(endpoint, "wait", {}))
            await server.wait_for(lambda: server.calls and server.calls[-1].tool == "wait")
            await cancel(task)
        else:
            await client.call(endpoint, "echo", {})
        await client.forget(endpoint.server_id)
        server.calls.clear()
        server.requests.clear()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ({}, 450),
        ({"generation": "handshake"}, 350),
        ({"generation": "handshake", "transport": "sse"}, 200),
    ],
    ids=["modern", "handshake", "sse"],
)
async def test_after_a_thousand_connects_nothing_is_left(kind: dict[str, Any], times: int) -> None:
    async with McpTestServer(**kind) as server, open_client(patience=500) as client:
        await open_call_close(client, server, 5)
        await eventually(lambda: mcp_tasks() == [] and server.open_connections == 0)
        gc.collect()
        files = open_files()
        await open_call_close(client, server, times)
        await eventually(lambda: mcp_tasks() == [] and server.open_connections == 0)
        gc.collect()
        assert open_files() <= files
        assert client.open_connections == 0


@pytest.mark.slow
async def test_after_some_processes_none_is_left(tmp_path: Path) -> None:
    async with open_client() as client:
        endpoint = stdio_endpoint(tmp_path)
        pids = []
        for _ in range(5):
            pids.append(int(read_text(await client.call(endpoint, "pid", {}))))
            await client.forget(endpoint.server_id)
        await eventually(lambda: mcp_tasks() == [])
        assert len({*pids}) == 5
        assert not {*pids} & set(psutil.pids())
