"""The store on SQLAlchemy: a transaction is one call on a thread. What is special to a database is in its own module."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, suppress
from typing import Final, TypeVar

from msgspec import Struct
from sqlalchemy import Connection, Engine

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.driver_errors import TransactionConflict
from holdfast.adapters.store.servers import DatabaseClock
from holdfast.adapters.store.time_limit import check_statements, limit_transaction
from holdfast.adapters.store.transaction import SqlTransaction
from holdfast.adapters.store.vector_cache import VectorCache
from holdfast.errors import DiskFull, OutcomeUnknown, StoreUnavailable
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")

# How often work is run when transactions conflict; it must therefore be repeatable.
ATTEMPTS: Final = 3


class VectorOptions(Struct, frozen=True):
    """``cache_bytes``: how much memory the vectors of a SQLite store may take. ``message_embedding``: the handle of the model
    that makes vectors of messages, if any does."""

    cache_bytes: int = 256 * 1024 * 1024
    message_embedding: str | None = None


DEFAULT_VECTOR_OPTIONS: Final = VectorOptions()


class SqlStore:
    """Owns the engines and threads that it is given, and closes them; ``on_close`` is called last, if there is one.

    ``use_writer`` provides the connection for one write transaction, which may take ``write_seconds``. ``clock`` is the
    clock of a database that has none of its own. ``message_embedding`` is the model that makes vectors of messages.
    """

    def __init__(
        self,
        *,
        writer: Engine,
        use_writer: Callable[[], AbstractContextManager[Connection]],
        reader: Engine,
        write_threads: Executor,
        read_threads: Executor,
        cipher: Cipher,
        clock: DatabaseClock | None,
        write_seconds: float,
        vector_cache: VectorCache | None = None,
        message_embedding: str | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._writer = writer
        self._use_writer = use_writer
        self._reader = reader
        self._write_threads = write_threads
        self._read_threads = read_threads
        self._cipher = cipher
        self._clock = clock
        self._write_seconds = write_seconds
        self._vector_cache = vector_cache
        self._message_embedding = message_embedding
        self._on_close = on_close
        check_statements(writer)
        # Which of reads and writes failed last time.
        self._failing: set[str] = set()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        # Shielded: a cancelled caller must not leave open whether its work was done.
        return await asyncio.shield(
            _submit(self._write_threads, lambda: self._run("write", self._write_once, work))
        )

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await _submit(self._read_threads, lambda: self._run("read", self._read_once, work))

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _run(
        self,
        kind: str,
        once: Callable[[Callable[[Transaction], T]], T],
        work: Callable[[Transaction], T],
    ) -> T:
        """Run the work, again if transactions conflict, and log the end of an outage. Reads may work while writes fail,
        so it is over when what has failed works again."""
        try:
            result = _retry(lambda: once(work))
        except StoreUnavailable:
            self._failing.add(kind)
            raise
        if kind in self._failing:
            self._failing.discard(kind)
            if not self._failing:
                log.warning("store.recovered")
        return result

    def _write_once(self, work: Callable[[Transaction], T]) -> T:
        with self._use_writer() as connection:
            connection.begin()
            with limit_transaction(connection, self._write_seconds):
                result = work(
                    SqlTransaction(
                        connection,
                        self._cipher,
                        self._clock,
                        message_embedding=self._message_embedding,
                    )
                )
            _commit(connection)
            return result

    def _read_once(self, work: Callable[[Transaction], T]) -> T:
        with self._reader.connect() as connection:
            connection.begin()
            result = work(
                SqlTransaction(
                    connection, self._cipher, self._clock, vector_cache=self._vector_cache
                )
            )
            # After a rollback psycopg forgets the statements that it has prepared.
            connection.commit()
            return result

    def _close(self) -> None:
        # Accepted work is finished first.
        self._write_threads.shutdown()
        self._read_threads.shutdown()
        self._reader.dispose()
        self._writer.dispose()
        if self._on_close is not None:
            self._on_close()


def _retry(once: Callable[[], T]) -> T:
    for _ in range(ATTEMPTS - 1):
        with suppress(TransactionConflict):
            return once()
    try:
        return once()
    except TransactionConflict as error:
        raise StoreUnavailable(str(error)) from error


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except DiskFull:
        # The database has told that it could not write, so nothing is committed.
        raise
    except StoreUnavailable as error:
        # It may or may not be committed, so it must not be run again.
        raise OutcomeUnknown(f"The outcome of a commit is unknown: {error}") from error


def _submit(threads: Executor, work: Callable[[], T]) -> "asyncio.Future[T]":
    try:
        return asyncio.get_running_loop().run_in_executor(threads, work)
    except RuntimeError as error:
        raise StoreUnavailable("The store is closed.") from error
