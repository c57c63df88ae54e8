"""What every row gets: a provider, its own databases and folders, and the amount of work."""

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
from sqlalchemy import make_url

from bench import processes
from bench.client import Client

MODEL = "openai/gpt-4o-mini"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
TURN: Mapping[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    starts: int = 5
    turns: int = 200
    agents: int = 100
    long_turns: int = 30
    chains: int = 10
    load_seconds: float = 8.0
    conversations: int = 64
    streams: int = 40
    single_streams: int = 10
    paced_words: int = 500
    cancels: int = 30
    tool_cancels: int = 10
    followers: int = 1000
    readers: int = 5000
    reconnects: int = 100
    runs: int = 1_000_000
    approvals: int = 30
    inboxes: int = 30
    takeovers: int = 8
    stored_tokens: int = 1_000
    notifications: int = 5_000
    file_mb: int = 100
    passages: int = 100_000
    messages: int = 1_000_000


QUICK = Counts(
    starts=2,
    turns=50,
    agents=30,
    long_turns=8,
    chains=3,
    load_seconds=3.0,
    streams=10,
    single_streams=4,
    paced_words=150,
    cancels=10,
    tool_cancels=4,
    followers=300,
    readers=1000,
    reconnects=30,
    runs=100_000,
    approvals=8,
    inboxes=8,
    takeovers=2,
    stored_tokens=200,
    notifications=1_000,
    file_mb=10,
    passages=20_000,
    messages=100_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The files of a server that survive a restart."""

    folder: Path
    database_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDatabase:
    """A PostgreSQL database for several servers, and the key that they share."""

    url: str
    secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext:
    provider: processes.RunningProcess
    folder: Path
    counts: Counts
    # The address of a PostgreSQL server; None means SQLite.
    postgres: str | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_folder(self) -> Path:
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    def new_home(self) -> Home:
        folder = self.new_folder()
        if self.postgres is None:
            return Home(folder=folder, database_url=None)
        name = f"bench_{folder.name}"
        with psycopg.connect(self.postgres, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        url = make_url(self.postgres).set(database=name)
        return Home(folder=folder, database_url=url.render_as_string(hide_password=False))

    @contextmanager
    def server(
        self, home: Home, variables: Mapping[str, str] = NO_VARIABLES
    ) -> Iterator[processes.RunningProcess]:
        with processes.server(
            home.folder, self.provider.address, home.database_url, variables
        ) as running:
            yield running

    def new_shared_database(self) -> SharedDatabase:
        url = self.new_home().database_url
        if url is None:
            raise RuntimeError("Several servers need PostgreSQL: python -m bench --postgres.")
        return SharedDatabase(url=url, secret_key=secrets.token_hex())

    @asynccontextmanager
    async def shared_server(
        self, database: SharedDatabase, variables: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[processes.RunningProcess]:
        """A server with a home of its own, once it is at rest."""
        home = Home(folder=self.new_folder(), database_url=database.url)
        shared = {"HOLDFAST_SECRET_KEY": database.secret_key, **variables}
        with self.server(home, shared) as running:
            await running.wait_until_idle()
            yield running

    @asynccontextmanager
    async def shared_servers(
        self, database: SharedDatabase, count: int, variables: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[list[processes.RunningProcess]]:
        """Several servers that know of each other and have run their first turns."""
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(self.shared_server(database, variables))
                for _ in range(count)
            ]
            for running in servers:
                async with processes.open_client(running.address) as client:
                    await warm_up(client)
            yield servers

    @asynccontextmanager
    async def warm_server(
        self, variables: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[tuple[processes.RunningProcess, Client]]:
        """A warmed-up server, whose providers are loaded and which has run its first turns, and a client."""
        with self.server(self.new_home(), variables) as running:
            # Before the client connects: a connection without a request is not waited for long.
            await running.wait_until_idle()
            async with processes.open_client(running.address) as client:
                await warm_up(client)
                yield running, client


async def warm_up(client: Client) -> None:
    agent = await new_agent(client)
    for _ in range(10):
        await client.post(turn_path(agent), TURN)


async def new_agent(client: Client, **fields: Any) -> str:
    """The id of a new agent with the default tools and blocks."""
    made = await client.post("/v1/agents/", {"model": MODEL} | fields)
    return str(made["id"])


def turn_path(agent_id: str) -> str:
    return f"/v1/agents/{agent_id}/messages"
