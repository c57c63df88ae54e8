"""MCP servers that other people made, from npm: over stdio in the sandbox, and over streamable HTTP."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.npm_servers import (
    NPM_SECONDS,
    NpmServers,
    install_npm_servers,
    npm_problem,
    run_over_http,
)
from tests.support.stdio_programs import make_endpoint
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.core.addresses import parse_allowed
from holdfast.core.mcp_servers import Endpoint, Transport
from holdfast.core.messages import Image, Text
from holdfast.ports.mcp import RemoteResult, ToolProgress

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(NPM_SECONDS),
    pytest.mark.skipif(npm_problem() is not None, reason=npm_problem() or ""),
]


@pytest.fixture(scope="session")
def npm_servers() -> NpmServers:
    return install_npm_servers()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every process may read, and one in it that every process may write to."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "writable").mkdir()
        (Path(folder) / "writable").chmod(0o777)
        (Path(folder) / "note.txt").write_text("Remember the milk.")
        yield Path(folder)


@pytest.fixture
async def client(shared: Path) -> AsyncIterator[PooledMcpClient]:
    sandbox = SubprocessSandbox(
        writable=(shared / "writable",),
        user=ToolUser.find("nobody") if os.geteuid() == 0 else None,
    )
    servers = StdioServers(sandbox, max_message_bytes=1024**2)
    made = PooledMcpClient(ClientOptions(), parse_allowed(()), open_stdio=servers.open)
    yield made
    async with asyncio.timeout(WAIT_SECONDS):
        await made.aclose()
        await sandbox.close()


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, npm_servers: NpmServers) -> Iterator[Endpoint]:
    if request.param == "stdio":
        yield make_endpoint("node", npm_servers.everything, name="everything", COLOUR="blue")
        return
    with run_over_http(npm_servers.everything) as url:
        yield Endpoint(
            server_id="mcp_server-1",
            server_name="everything",
            transport=Transport.STREAMABLE_HTTP,
            url=url,
            is_trusted=True,
        )


def read_text(result: RemoteResult) -> str:
    return " ".join(part.text for part in result.content if isinstance(part, Text))


async def test_the_server_with_everything_is_used(
    client: PooledMcpClient, everything: Endpoint
) -> None:
    async with asyncio.timeout(3 * WAIT_SECONDS):
        tools = {tool.name: tool for tool in await client.list_tools(everything)}
        assert tools["echo"].input_schema["required"] == ["message"]

        result = await client.call(everything, "echo", {"message": "hello"})
        assert (read_text(result), result.is_error) == ("Echo: hello", False)

        result = await client.call(everything, "get-sum", {"a": 2, "b": 3})
        assert "5" in read_text(result)

        result = await client.call(everything, "echo", {})
        assert result.is_error
        assert "message" in read_text(result)

        result = await client.call(everything, "get-tiny-image", {})
        pictures = [part for part in result.content if isinstance(part, Image)]
        assert [picture.media_type for picture in pictures] == ["image/png"]


async def test_the_server_with_everything_reports_progress(
    client: PooledMcpClient, everything: Endpoint
) -> None:
    steps: list[ToolProgress] = []
    arguments = {"duration": 0.2, "steps": 4}
    async with asyncio.timeout(3 * WAIT_SECONDS):
        await client.call(everything, "trigger-long-running-operation", arguments, steps.append)
    assert [(step.progress, step.total) for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_a_cancelled_call_leaves_the_connection_to_others(
    client: PooledMcpClient, everything: Endpoint
) -> None:
    has_begun = asyncio.Event()
    arguments = {"duration": 600, "steps": 6000}
    async with asyncio.timeout(3 * WAIT_SECONDS):
        call = asyncio.create_task(
            client.call(
                everything,
                "trigger-long-running-operation",
                arguments,
                lambda _: has_begun.set(),
            )
        )
        await has_begun.wait()
        call.cancel()
        await asyncio.wait({call})
        result = await client.call(everything, "echo", {"message": "still there"})
    assert call.cancelled()
    assert read_text(result) == "Echo: still there"


async def test_a_program_from_npm_sees_only_its_own_environment(
    client: PooledMcpClient, npm_servers: NpmServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PASSWORD", "swordfish")
    endpoint = make_endpoint("node", npm_servers.everything, COLOUR="blue")
    async with asyncio.timeout(3 * WAIT_SECONDS):
        shown = read_text(await client.call(endpoint, "get-env", {}))
    assert '"COLOUR": "blue"' in shown
    assert "swordfish" not in shown


async def test_files_are_read_and_written_only_where_the_sandbox_lets_tools(
    client: PooledMcpClient, npm_servers: NpmServers, shared: Path
) -> None:
    endpoint = make_endpoint("node", npm_servers.filesystem, str(shared))

    async def call(tool: str, **arguments: Any) -> RemoteResult:
        return await client.call(endpoint, tool, arguments)

    async with asyncio.timeout(3 * WAIT_SECONDS):
        tools = {tool.name: tool for tool in await client.list_tools(endpoint)}
        assert tools["read_text_file"].is_read_only
        assert tools["write_file"].is_destructive
        assert not tools["create_directory"].is_destructive

        listed = read_text(await call("list_directory", path=str(shared)))
        assert listed == "[FILE] note.txt\n[DIR] writable"
        text = read_text(await call("read_text_file", path=str(shared / "note.txt")))
        assert text == "Remember the milk."

        outside = await call("read_text_file", path="/etc/hostname")
        assert outside.is_error
        assert "Access denied" in read_text(outside)

        written = await call("write_file", path=str(shared / "writable" / "new"), content="New.")
        assert not written.is_error, read_text(written)
        forbidden = await call("write_file", path=str(shared / "new"), content="New.")
        assert forbidden.is_error
        assert "EACCES" in read_text(forbidden)
    assert (shared / "writable" / "new").read_text() == "New."
