"""What several suites use: databases (SQLite files in the test's folder, one real PostgreSQL per test process), a scripted
provider and threads for clients."""

import gc
import signal
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy.pool import QueuePool
from tests.support.blank_store import create_blank_store
from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.values import Make
from tests.support.waiting import eventually

from holdfast.adapters.store.cipher import Cipher, FernetCipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.testing import ScriptedProvider

# CPython 3.11 takes a garbage collection in the middle of parsing a module for an error ("AST constructor
# recursion depth mismatch"), and pytest parses hundreds: it does so without.
gc.disable()

# A shell starts a background job with SIGINT ignored, and processes inherit that: those that tests interrupt would go on.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    # What was imported stays: no collection need walk through it again.
    gc.freeze()
    gc.enable()


@pytest.fixture
def cipher() -> Cipher:
    return FernetCipher("a key for tests")


@pytest.fixture
async def store(tmp_path: Path, cipher: Cipher) -> AsyncIterator[SqliteStore]:
    """A fresh store, as a server has it on its first start."""
    path = create_blank_store(tmp_path / "holdfast.db")
    opened = await SqliteStore.open(path, cipher=cipher)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that this test process alone uses; started when first asked for."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a PostgreSQL database without tables."""
    url = postgres_server.create_empty()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def blank_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a PostgreSQL database with tables and without rows."""
    url = postgres_server.create_blank()
    yield url
    postgres_server.drop(url)


DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store without tables, once for each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(params=DATABASES)
def blank_store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store as a server's first start leaves it, once for each database."""
    if request.param == "sqlite":
        return f"sqlite:///{create_blank_store(tmp_path / 'holdfast.db')}"
    url: str = request.getfixturevalue("blank_postgres_url")
    return url


@pytest.fixture
async def any_store(blank_store_url: str, cipher: Cipher) -> AsyncIterator[SqlStore]:
    """A fresh store, once on each database. At the end every connection must be back in its pool."""
    opened = await open_store(blank_store_url, cipher=cipher)
    yield opened
    pools = [opened._writer.pool, opened._reader.pool]
    # The store finishes what a task has asked for that was cancelled meanwhile.
    await eventually(
        lambda: all(pool.checkedout() == 0 for pool in pools if isinstance(pool, QueuePool))
    )
    await opened.close()


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture(scope="module")
def running_provider() -> Iterator[ScriptedProvider]:
    """A scripted provider in a thread, for servers that live as long as the module."""
    with ScriptedProvider.in_thread(default="Hello.", check_script=False) as running:
        yield running


@pytest.fixture
def provider(running_provider: ScriptedProvider) -> ScriptedProvider:
    """The same, without what earlier tests have scripted."""
    running_provider.reset()
    return running_provider


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for clients that wait while the test does something else."""
    with ThreadPoolExecutor(max_workers=8) as threads:
        yield threads
