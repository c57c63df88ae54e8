"""The store on SQLite: one file in WAL mode, one writer thread, and a few reader threads on snapshots."""

import asyncio
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    PoolProxiedConnection,
    QueuePool,
    create_engine,
    event,
)

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.driver_errors import (
    constraint_names_by_columns,
    foreign_key_violation,
    translate_errors,
    unique_violation,
)
from holdfast.adapters.store.file_lock import FileLock
from holdfast.adapters.store.file_permissions import (
    make_private_file,
    restrict_to_owner,
    sqlite_files,
)
from holdfast.adapters.store.prepared_statement import run_on_cursor
from holdfast.adapters.store.servers import DatabaseClock
from holdfast.adapters.store.sql_store import DEFAULT_VECTOR_OPTIONS, SqlStore, VectorOptions
from holdfast.adapters.store.time_limit import TIMED_OUT, WRITE_SECONDS, is_transaction_late
from holdfast.adapters.store.vector_cache import VectorCache
from holdfast.errors import (
    Bug,
    DiskFull,
    HoldfastError,
    InvalidArgument,
    SettingInvalid,
    StoreUnavailable,
    WriteTimedOut,
)

# Readers only wait for the disk; more threads would compete for the interpreter.
READERS: Final = 4
# How long to wait for another process that locks the file: a backup, an SQL shell.
_BUSY_SECONDS: Final = 10

# Of SQLite's virtual machine: some milliseconds. Most statements take far fewer.
_STEPS_BETWEEN_CHECKS: Final = 100_000
# The size of the write-ahead log on disk. How long the writer waits for readers to restore it, and after how much growth
# it tries again if they did not end.
MAX_LOG_BYTES: Final = 8 * 1024 * 1024
_LOG_WAIT_MILLISECONDS: Final = 200
_LOG_GROWTH_BYTES: Final = 1024 * 1024

# What SQLite says of a search text of more than 50,000 bytes. It has no code of its own.
_LONG_PATTERN: Final = "LIKE or GLOB pattern too complex"

_UNIQUE_COLUMNS: Final = constraint_names_by_columns()


def _read_clock() -> datetime:
    return datetime.now(UTC)


class SqliteStore(SqlStore):
    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        cipher: Cipher,
        write_seconds: float = WRITE_SECONDS,
        survive_power_cut: bool = False,
        vectors: VectorOptions = DEFAULT_VECTOR_OPTIONS,
    ) -> "SqliteStore":
        """Open or create the store in this file: upgraded to the newest revision and locked for this process.

        With ``survive_power_cut`` each commit waits until the disk has it; without, a power cut can undo the last ones.
        """
        return await asyncio.to_thread(
            partial(cls._open, path, cipher, write_seconds, survive_power_cut, vectors=vectors)
        )

    @classmethod
    def _open(
        cls,
        path: Path,
        cipher: Cipher,
        write_seconds: float = WRITE_SECONDS,
        survive_power_cut: bool = False,
        clock: DatabaseClock = _read_clock,
        *,
        vectors: VectorOptions = DEFAULT_VECTOR_OPTIONS,
    ) -> "SqliteStore":
        with ExitStack() as cleanup:
            cleanup.callback(_lock_file(path).release)
            _restrict_files(path)
            schema_upgrade.upgrade_sqlite_file(
                path, partial(_create_engine, path, connections=1, pragmas=_UPGRADE_PRAGMAS)
            )
            synchronous = "PRAGMA synchronous=FULL" if survive_power_cut else _SYNCHRONOUS_NORMAL
            writer = _create_engine(
                path,
                connections=1,
                pragmas=(*_WRITER_PRAGMAS, synchronous),
                begin="BEGIN IMMEDIATE",
            )
            connection = cleanup.enter_context(writer.connect())
            connection.detach()
            _interrupt_late_statements(connection)
            log = _WriteAheadLog(path)
            return cls(
                writer=writer,
                use_writer=lambda: _use_writer(connection, log),
                reader=_create_engine(path, connections=READERS, pragmas=_READER_PRAGMAS),
                write_threads=ThreadPoolExecutor(1, "store-writer"),
                read_threads=ThreadPoolExecutor(READERS, "store-reader"),
                cipher=cipher,
                clock=clock,
                write_seconds=write_seconds,
                vector_cache=VectorCache(vectors.cache_bytes),
                message_embedding=vectors.message_embedding,
                on_close=cleanup.pop_all().close,
            )


def _lock_file(path: Path) -> FileLock:
    try:
        return FileLock(path)
    except OSError as error:
        raise SettingInvalid(
            f"The folder {path.parent} of the database cannot be written: {error.strerror or error}."
        ) from error


def _restrict_files(path: Path) -> None:
    # Created before SQLite does: the log files get the permissions of the database file.
    make_private_file(path)
    for file in sqlite_files(path):
        restrict_to_owner(file)


class _WriteAheadLog:
    """The log beside the database file. SQLite starts it over after a checkpoint, but only at a moment when nobody reads:
    readers that overlap without a gap would make it grow for ever. So the writer waits for such a moment when it is
    too large."""

    def __init__(self, path: Path) -> None:
        self._file = Path(f"{path}-wal")
        self._allowed_bytes = MAX_LOG_BYTES

    def limit_size(self, connection: PoolProxiedConnection) -> None:
        if self._file.stat().st_size <= self._allowed_bytes:
            return
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={_LOG_WAIT_MILLISECONDS}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            cursor.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000}")
            cursor.close()
            # With a reader that stays for long (a backup, an SQL shell) not every write should wait.
            size = self._file.stat().st_size
            self._allowed_bytes = max(MAX_LOG_BYTES, size + _LOG_GROWTH_BYTES if size else 0)


@contextmanager
def _use_writer(connection: Connection, log: _WriteAheadLog) -> Iterator[Connection]:
    """Lend the writer's only connection to one transaction. It is not returned to a pool."""
    driver = connection.connection
    try:
        yield connection
    finally:
        connection.rollback()
        # After a failed commit SQLAlchemy considers the transaction ended, but SQLite does not.
        driver.rollback()
    with suppress(sqlite3.Error, OSError):
        # What is committed stays committed, whether there is room for a checkpoint or not.
        log.limit_size(driver)


def _interrupt_late_statements(connection: Connection) -> None:
    """Make SQLite end a statement that runs when the time of its transaction is over."""

    def is_late() -> bool:
        return is_transaction_late(connection)

    driver: Any = connection.connection.dbapi_connection
    driver.set_progress_handler(is_late, _STEPS_BETWEEN_CHECKS)


_SYNCHRONOUS_NORMAL: Final = "PRAGMA synchronous=NORMAL"
_WRITER_PRAGMAS: Final = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA foreign_keys=ON",
    # In pages of 4 KiB. A checkpoint waits for the disk, so it should be rare; but the log must stay below its limit.
    "PRAGMA wal_autocheckpoint=1500",
    # A log that a large transaction has made longer is cut when it is started over.
    f"PRAGMA journal_size_limit={MAX_LOG_BYTES}",
)
_READER_PRAGMAS: Final = ("PRAGMA query_only=ON",)
# Rebuilding a table must not delete the rows that refer to it.
_UPGRADE_PRAGMAS: Final = ("PRAGMA journal_mode=WAL", "PRAGMA foreign_keys=OFF")


def _create_engine(
    path: Path, *, connections: int, pragmas: tuple[str, ...], begin: str = "BEGIN"
) -> Engine:
    engine = create_engine(
        URL.create("sqlite+pysqlite", database=str(path)),
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        # A connection is used by one thread at a time, but closed by another.
        connect_args={"check_same_thread": False, "timeout": _BUSY_SECONDS},
        hide_parameters=True,
    )

    def set_up_connection(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not start transactions by itself; ``begin_transaction`` does.
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(pragma).close()
        # SQLite's own function converts ASCII only.
        connection.create_function("lower", 1, _lower, deterministic=True)

    def begin_transaction(connection: Connection) -> None:
        run_on_cursor(connection, begin, lambda cursor: cursor.execute(begin))

    event.listen(engine, "connect", set_up_connection)
    event.listen(engine, "begin", begin_transaction)
    translate_errors(engine, _translate)
    return engine


def _lower(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


def _translate(error: BaseException) -> HoldfastError | None:
    if not isinstance(error, sqlite3.Error):
        return None
    match getattr(error, "sqlite_errorname", None):
        case "SQLITE_CONSTRAINT_UNIQUE" | "SQLITE_CONSTRAINT_PRIMARYKEY":
            return unique_violation(_UNIQUE_COLUMNS.get(str(error).partition(": ")[2]))
        case "SQLITE_CONSTRAINT_FOREIGNKEY":
            return foreign_key_violation()
        case "SQLITE_INTERRUPT":
            return WriteTimedOut(TIMED_OUT)
        case "SQLITE_TOOBIG":
            return InvalidArgument("A value is too large to be stored.")
        case "SQLITE_ERROR" if _LONG_PATTERN in str(error):
            return InvalidArgument("A text to search for is too long.")
        case "SQLITE_READONLY":
            return Bug("A read transaction tried to write.")
        case "SQLITE_FULL" | "SQLITE_IOERR_WRITE" as name:
            # Not an error of a sync: after that one the commit may be found in the log at the next start.
            return DiskFull(f"The store cannot be written: {error} ({name}).")
        case "SQLITE_ERROR" | "SQLITE_CONSTRAINT_NOTNULL" | "SQLITE_MISUSE" | None:
            return None
        case name:
            return StoreUnavailable(f"The store cannot be used: {error} ({name}).")
