"""A real server, the official Letta client that makes its agents, and the official MCP client in both generations."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from letta_client import Letta, NotFoundError
from tests.support.mcp_client import GENERATIONS
from tests.support.server_process import ServerProcess
from tests.support.wire_server import MODELS, MakeAgent, MakeTool, connect, variables

from holdfast.testing import ScriptedProvider


@pytest.fixture(scope="module")
def server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **variables(running_provider))
    yield started
    started.stop()


@pytest.fixture(params=GENERATIONS)
def generation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def letta(server: ServerProcess, provider: ScriptedProvider) -> Iterator[Letta]:
    written = len(server.log)
    with connect(server.address) as client:
        yield client
    # Shown with a failure.
    sys.stderr.write(server.log[written:])


@pytest.fixture
def make_agent(letta: Letta) -> Iterator[MakeAgent]:
    """Makes agents without built-in tools; they are deleted at the end."""
    made: list[str] = []

    def make(**fields: Any) -> Any:
        given: dict[str, Any] = {"model": MODELS["openai"], "include_base_tools": False} | fields
        agent = letta.agents.create(**given)
        made.append(agent.id)
        return agent

    yield make
    for agent_id in made:
        with suppress(NotFoundError):
            letta.agents.delete(agent_id)


@pytest.fixture
def make_tool(letta: Letta) -> Iterator[MakeTool]:
    """Makes tools from source; they are deleted at the end."""
    made: list[str] = []

    def make(source_code: str, **fields: Any) -> Any:
        tool = letta.tools.upsert(source_code=source_code, **fields)
        made.append(tool.id)
        return tool

    yield make
    for tool_id in made:
        with suppress(NotFoundError):
            letta.tools.delete(tool_id)
