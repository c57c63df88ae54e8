"""The MCP server of real deployments: what a start costs, several servers, a server that stops."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.support.client_objects import message_texts
from tests.support.mcp_client import (
    LEGACY,
    TIMEOUT_SECONDS,
    call,
    call_for_value,
    connect_mcp,
)
from tests.support.postgres_server import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.wire_server import MODELS, MakeAgent, connect, variables

from holdfast.testing import Answer, Gate, ScriptedProvider

pytestmark = pytest.mark.slow

CALLS_AT_ONCE = 20
# Of the whole program below.
PROGRAM_SECONDS = 120
PROGRAM = """
import asyncio, sys
from httpx import ASGITransport, AsyncClient
from holdfast.assembly.http_app import build_http_app
from holdfast.assembly.lifespan import running_server
from holdfast.config import Settings

def loaded():
    return sorted({name.split(".")[0] for name in sys.modules} & {"mcp", "mcp_types", "sse_starlette"})

async def main():
    settings = Settings.read({})
    async with running_server(settings) as running:
        transport = ASGITransport(build_http_app(settings, running))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/v1/ready/")).status_code == 200
            assert (await client.get("/v1/agents/")).status_code == 200
            assert (await client.get("/mcp")).status_code == 405
            print(loaded())
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            answer = await client.post("/mcp", json=ping)
            assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}, answer.text
            print("mcp" in loaded())

asyncio.run(main())
"""


class RandomServers(httpx2.AsyncHTTPTransport):
    """Sends each request to one of the servers, as a load balancer does."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__(verify=False)
        self._urls = [httpx2.URL(address) for address in addresses]
        self._chance = random.Random(0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        chosen = self._chance.choice(self._urls)
        request.url = request.url.copy_with(host=chosen.host, port=chosen.port)
        return await super().handle_async_request(request)


@pytest.fixture(scope="module")
def deployment(
    running_provider: ScriptedProvider,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[ServerProcess]]:
    shared = variables(running_provider) | {
        "HOLDFAST_DATABASE_URL": postgres_server.create_empty(),
        "HOLDFAST_SECRET_KEY": "one key for all servers",
    }
    started = [ServerProcess.start(tmp_path_factory.mktemp("home"), **shared) for _ in range(2)]
    yield started
    for server in started:
        server.stop()


def test_the_sdk_is_loaded_with_the_first_request(tmp_path: Path) -> None:
    """A server without MCP clients starts as fast, and is as small, as before."""
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_SECONDS,
        env=environment,
    )

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["[]", "True"]


async def test_twenty_calls_at_once_are_all_answered(
    server: ServerProcess, generation: str, make_agent: MakeAgent
) -> None:
    agents = [make_agent().id for _ in range(CALLS_AT_ONCE)]
    async with connect_mcp(server.address, generation) as client:
        answers = await asyncio.gather(
            *(call(client, "send_message", agent=agent, message="Hello") for agent in agents)
        )

    assert answers == ["Hello."] * CALLS_AT_ONCE


async def test_any_server_of_a_deployment_answers_any_request(
    deployment: list[ServerProcess], generation: str, provider: ScriptedProvider
) -> None:
    addresses = [server.address for server in deployment]
    letta = connect(*addresses)
    agents = [
        letta.agents.create(model=MODELS["openai"], include_base_tools=False).id for _ in range(4)
    ]
    async with (
        httpx2.AsyncClient(transport=RandomServers(addresses), timeout=TIMEOUT_SECONDS) as http,
        Client(
            streamable_http_client(f"{addresses[0]}/mcp", http_client=http), mode=generation
        ) as client,
    ):
        for _ in range(3):
            answers = await asyncio.gather(
                *(call(client, "send_message", agent=agent, message="Hello") for agent in agents)
            )
            assert answers == ["Hello."] * len(agents)
        for agent in agents:
            listed = await call_for_value(client, "list_runs", agent=agent)
            assert [run["status"] for run in listed["runs"]] == ["completed"] * 3
            assert message_texts(letta, agent) == ["Hello", "Hello."] * 3


async def test_a_caller_who_waits_is_told_that_the_server_stops_and_that_the_run_is_kept(
    running_provider: ScriptedProvider,
    provider: ScriptedProvider,
    tmp_path: Path,
    generation: str,
) -> None:
    gate = Gate()
    provider.script(Answer("I was about", gate))
    settings = variables(running_provider) | {"HOLDFAST_DRAIN_SECONDS": "0.2"}
    started = ServerProcess.start(tmp_path, **settings)
    letta = connect(started.address)
    agent = letta.agents.create(model=MODELS["openai"], include_base_tools=False).id
    async with connect_mcp(started.address, generation) as client:
        sending = asyncio.create_task(
            client.call_tool("send_message", {"agent": agent, "message": "Hello"})
        )
        await gate.reached.wait()
        (run,) = (await call_for_value(client, "list_runs"))["runs"]
        os.kill(started.pid, signal.SIGTERM)
        told = await sending
        await asyncio.to_thread(started.wait_for_exit)
    gate.release()

    assert told.is_error
    assert f"The server is stopping. The run {run['id']} is kept" in str(told.content)
    assert "request.interrupted" in started.log
    assert "Traceback" not in started.log

    provider.script("I am back.")
    again = ServerProcess.start(tmp_path, **settings)
    try:
        async with connect_mcp(again.address, generation) as client:
            answer = await call(client, "get_run", run_id=run["id"], wait_seconds=60)
    finally:
        again.stop()
    assert answer == "I am back."


async def test_a_wrong_password_ends_the_connection_with_the_servers_reason(
    running_provider: ScriptedProvider, tmp_path: Path
) -> None:
    started = ServerProcess.start(
        tmp_path, **variables(running_provider), HOLDFAST_PASSWORD="sesame"
    )
    try:
        for generation in (LEGACY, "auto"):
            right = {"authorization": "Bearer sesame"}
            async with connect_mcp(started.address, generation, right) as client:
                assert (await call_for_value(client, "list_agents")) == {"agents": []}
            with pytest.raises(BaseExceptionGroup) as refused:
                async with connect_mcp(started.address, generation, {"authorization": "Bearer x"}):
                    pass
            assert refused.group_contains(MCPError, match="needs its password")
    finally:
        started.stop()
