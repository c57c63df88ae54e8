"""The floor: the same work by the smallest possible script.

One call of the provider over raw HTTP on an open connection, one commit with bare ``sqlite3`` under the
same durability as the store's. No server, no agent, no run.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from bench import processes
from bench.client import Client
from bench.measurements import median

Work: TypeAlias = Callable[[], Awaitable[object]]

_CALL_PATH = "/v1/chat/completions"
_USER_MESSAGE = {"role": "user", "content": "hi"}

# Imports only asyncio and answers every request with 200.
_SMALLEST_SERVER = """
import asyncio

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")
    await writer.drain()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print("http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


class Floor:
    """A turn without a server: a connection to the provider and a table."""

    def __init__(self, client: Client, database: sqlite3.Connection) -> None:
        self._client = client
        self._database = database

    async def call(self, *history: dict[str, str]) -> str:
        answer = await self._client.post(
            _CALL_PATH, {"model": "gpt-4o-mini", "messages": [*history, _USER_MESSAGE]}
        )
        return str(answer["choices"][0]["message"]["content"])

    def commit(self, text: str) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO messages (body) VALUES (?)", (text,))
        self._database.execute("COMMIT")

    async def one_commit(self) -> None:
        self.commit("hi")

    async def turn(self) -> None:
        self.commit(await self.call())

    async def long_turn(self) -> None:
        rows = self._database.execute("SELECT body FROM messages ORDER BY id").fetchall()
        self.commit(await self.call(*({"role": "user", "content": body} for (body,) in rows)))

    async def tool_step(self) -> None:
        """A turn, and a function call in its own process."""
        await self.turn()
        call_in_fork()


def call_in_fork() -> None:
    """The smallest sandbox: a process that sends its result over a pipe and ends."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writable, b"1")
        os._exit(0)
    os.close(writable)
    os.read(readable, 1)
    os.close(readable)
    os.waitpid(pid, 0)


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "floor.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)")
        yield connection


@asynccontextmanager
async def floor(provider_address: str, folder: Path) -> AsyncIterator[Floor]:
    with database(folder) as connection:
        async with processes.open_client(provider_address) as client:
            yield Floor(client, connection)


@contextmanager
def smallest_server() -> Iterator[processes.RunningProcess]:
    with processes.start_process([sys.executable, "-c", _SMALLEST_SERVER]) as running:
        yield running


async def median_ms(work: Work, count: int) -> float:
    """The median time of one call of ``work``, after a few warm-up calls."""
    for _ in range(min(count, 5)):
        await work()
    return median([await measure_ms(work) for _ in range(count)])


async def measure_ms(work: Work) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


async def turns_per_second(
    provider_address: str, folder: Path, conversations: int, seconds: float
) -> float:
    """Floor turns of this many concurrent conversations in one process."""
    until = time.perf_counter() + seconds
    count = 0

    async def converse(connection: sqlite3.Connection) -> None:
        nonlocal count
        async with processes.open_client(provider_address) as client:
            floor = Floor(client, connection)
            while time.perf_counter() < until:
                await floor.turn()
                count += 1

    with database(folder) as connection:
        async with asyncio.TaskGroup() as group:
            for _ in range(conversations):
                group.create_task(converse(connection))
    return count / seconds
