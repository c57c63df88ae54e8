"""The official client, a real server process and a scripted provider: one of each per test process."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from letta_client import Letta, NotFoundError
from letta_client.types import AgentState, Tool
from tests.support.postgres_server import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.wire_server import (
    MODELS,
    MakeAgent,
    MakeTool,
    connect,
    connect_plainly,
    variables,
)

from holdfast.testing import ScriptedProvider


@pytest.fixture(scope="session")
def running_provider() -> Iterator[ScriptedProvider]:
    models = ("scripted-model", "text-embedding-3-small")
    with ScriptedProvider.in_thread(
        models=models, default="Hello.", check_script=False
    ) as provider:
        yield provider


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--servers",
        type=int,
        help="run all of tests/wire through so many servers on one PostgreSQL, each request to any of them",
    )


@pytest.fixture(scope="session")
def servers_on_sqlite(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ServerProcess]]:
    started = ServerProcess.start(tmp_path_factory.mktemp("home"), **variables(running_provider))
    yield [started]
    started.stop()


@pytest.fixture(scope="session")
def servers_on_postgresql(
    postgres_server: PostgresServer,
    running_provider: ScriptedProvider,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Iterator[list[ServerProcess]]:
    """Two servers, unless told otherwise."""
    shared = variables(running_provider) | {
        "HOLDFAST_DATABASE_URL": postgres_server.create_empty(),
        "HOLDFAST_SECRET_KEY": "one key for all servers",
    }
    started: list[ServerProcess] = []
    for _ in range(pytestconfig.getoption("servers", None) or 2):
        started.append(ServerProcess.start(tmp_path_factory.mktemp("home"), **shared))
        # The tools of all servers may write where the first one's may.
        shared["HOLDFAST_SANDBOX_WRITABLE"] = str(started[0].tool_files)
    yield started
    for server in started:
        server.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on each provider's wire if it asks for ``model``, and on each database if it is marked so.

    On PostgreSQL one provider is enough, and there are several servers.
    """
    is_marked = any(mark.name == "both_databases" for mark in metafunc.definition.iter_markers())
    if "model" in metafunc.fixturenames and is_marked:
        cases = [
            *(("sqlite", model) for model in MODELS.values()),
            ("postgresql", MODELS["openai"]),
        ]
        ids = [*(f"sqlite-{name}" for name in MODELS), "postgresql"]
        metafunc.parametrize(("database", "model"), cases, indirect=True, ids=ids)
    elif "model" in metafunc.fixturenames:
        metafunc.parametrize("model", MODELS.values(), indirect=True, ids=list(MODELS))
    elif is_marked:
        metafunc.parametrize("database", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> str:
    """The servers' database; see ``pytest_generate_tests``."""
    if pytestconfig.getoption("servers", None):
        return "postgresql"
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def servers(request: pytest.FixtureRequest, database: str) -> list[ServerProcess]:
    started: list[ServerProcess] = request.getfixturevalue(f"servers_on_{database}")
    return started


@pytest.fixture
def server(servers: list[ServerProcess]) -> ServerProcess:
    """One of them."""
    return servers[0]


@pytest.fixture
def client(servers: list[ServerProcess], provider: ScriptedProvider) -> Iterator[Letta]:
    """The official client without retries, since tests check the first answer."""
    written = [len(server.log) for server in servers]
    with connect(*(server.address for server in servers)) as letta:
        yield letta
    # Shown with a failure.
    for server, start in zip(servers, written, strict=True):
        sys.stderr.write(server.log[start:])


@pytest.fixture
def http(servers: list[ServerProcess]) -> Iterator[httpx.Client]:
    """Plain HTTP, for requests that the client cannot send."""
    with connect_plainly(*(server.address for server in servers)) as plain:
        yield plain


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """A model on the wire under test; see ``pytest_generate_tests``."""
    return str(request.param)


@pytest.fixture
def make_agent(client: Letta, request: pytest.FixtureRequest) -> Iterator[MakeAgent]:
    """Makes agents without built-in tools on the wire under test; they are deleted at the end."""
    asks_for_model = "model" in request.fixturenames
    handle = request.getfixturevalue("model") if asks_for_model else MODELS["openai"]
    made: list[str] = []

    def make(**fields: Any) -> AgentState:
        given: dict[str, Any] = {"model": handle, "include_base_tools": False} | fields
        agent = client.agents.create(**given)
        made.append(agent.id)
        return agent

    yield make
    for agent_id in made:
        with suppress(NotFoundError):
            client.agents.delete(agent_id)


@pytest.fixture
def make_tool(client: Letta) -> Iterator[MakeTool]:
    """Makes tools from source; they are deleted at the end."""
    made: list[str] = []

    def make(source_code: str, **fields: Any) -> Tool:
        tool = client.tools.upsert(source_code=source_code, **fields)
        made.append(tool.id)
        return tool

    yield make
    for tool_id in made:
        with suppress(NotFoundError):
            client.tools.delete(tool_id)
