"""The store on PostgreSQL: a pool of connections, and as many threads. Several servers may share the database."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from holdfast.adapters.postgres_session import (
    KEEPALIVE_OPTIONS,
    copy_keepalive,
    is_pooled,
    set_session,
)
from holdfast.adapters.store import postgres_upgrade, schema_upgrade
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.driver_errors import (
    TransactionConflict,
    foreign_key_violation,
    translate_errors,
    unique_violation,
)
from holdfast.adapters.store.pgvector import PgvectorState, read_state
from holdfast.adapters.store.procrastinate_schema import JOB_LOCK_INDEX, SCHEMA
from holdfast.adapters.store.schema_upgrade import StoredRevision
from holdfast.adapters.store.secret_key_check import check_secret_key
from holdfast.adapters.store.servers import SqlServers
from holdfast.adapters.store.sql_store import DEFAULT_VECTOR_OPTIONS, SqlStore, VectorOptions
from holdfast.adapters.store.time_limit import WRITE_SECONDS
from holdfast.core.servers import Server
from holdfast.errors import (
    Bug,
    CannotStart,
    DiskFull,
    HoldfastError,
    InvalidArgument,
    SettingInvalid,
    StoreUnavailable,
)

CONNECTIONS: Final = 8
# How long one statement may take: far longer than any normal one. Beyond this it waits for a lock or a disk.
STATEMENT_SECONDS: Final = 60
# How long PostgreSQL waits for the next statement of a transaction: far longer than any server takes. Beyond this the
# server is paused, or its packets do not arrive, and others wait for its locks, also to take its runs over.
IDLE_SECONDS: Final = 5
# Options in the URL take precedence.
_CONNECT_OPTIONS: Final = KEEPALIVE_OPTIONS | {
    "connect_timeout": 10,
    "application_name": "holdfast",
}

OnConnect = Callable[[psycopg.Connection[Any], object], None]


class PostgresStore(SqlStore):
    @classmethod
    async def open(
        cls,
        url: str,
        *,
        cipher: Cipher,
        statement_seconds: float = STATEMENT_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        write_seconds: float = WRITE_SECONDS,
        vectors: VectorOptions = DEFAULT_VECTOR_OPTIONS,
    ) -> "PostgresStore":
        """Open the store in this database, upgraded to the newest revision. SecretKeyDiffers if others use another key."""
        limit = _limit_statements(statement_seconds, idle_seconds)
        return await asyncio.to_thread(cls._open, url, cipher, limit, write_seconds, vectors)

    @classmethod
    def _open(
        cls,
        url: str,
        cipher: Cipher,
        limit_statements: OnConnect,
        write_seconds: float,
        vectors: VectorOptions,
    ) -> "PostgresStore":
        address = _parse_url(url)
        engine = _create_engine(address)
        where = address.render_as_string(hide_password=True)
        try:
            # Whatever the operator's default is: another server's commit must be seen once its lock is free.
            read_committed = engine.execution_options(isolation_level="READ COMMITTED")
            with read_committed.connect() as connection:
                postgres_upgrade.upgrade_database(connection, where)
                check_secret_key(connection, cipher, where)
            # Migrations have no time limit; the statement timeout is set afterwards.
            engine.dispose()
            event.listen(engine, "connect", limit_statements)
        except BaseException:
            engine.dispose()
            raise
        threads = ThreadPoolExecutor(CONNECTIONS, "store")
        return cls(
            writer=engine,
            use_writer=engine.connect,
            reader=engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            ),
            write_threads=threads,
            read_threads=threads,
            cipher=cipher,
            clock=None,
            write_seconds=write_seconds,
            message_embedding=vectors.message_embedding,
        )


def read_revision(url: str) -> tuple[str, StoredRevision | None]:
    """Return the address without its password, and the schema revision there; None if the database is empty."""
    address = _parse_url(url)
    engine = _create_engine(address, unpooled=True)
    try:
        with engine.connect() as connection:
            return address.render_as_string(hide_password=True), schema_upgrade.read_revision(
                connection
            )
    finally:
        engine.dispose()


def read_alive_servers(url: str) -> Sequence[Server]:
    """Return the servers that are alive; none if the database is empty, or older than this version."""
    address = _parse_url(url)
    engine = _create_engine(address, unpooled=True)
    try:
        with engine.connect() as connection:
            stored = schema_upgrade.read_revision(connection)
            where = address.render_as_string(hide_password=True)
            if stored is None or schema_upgrade.needs_upgrade(stored, where):
                return ()
            servers = SqlServers(connection, None)
            now = servers.now()
            return [server for server in servers.list() if server.is_alive(now)]
    finally:
        engine.dispose()


def read_pgvector_state(url: str) -> PgvectorState:
    """Find out whether the extension of vectors is used, or could be."""
    engine = _create_engine(_parse_url(url), unpooled=True)
    try:
        with engine.connect() as connection:
            return read_state(connection)
    finally:
        engine.dispose()


def create_single_engine(url: str, timeout_seconds: float) -> Engine:
    """Return an engine without a pool, whose connections commit each statement and wait for no answer for longer."""
    engine = _create_engine(
        _parse_url(url),
        unpooled=True,
        connect_timeout=max(2, int(timeout_seconds)),
        tcp_user_timeout=int(timeout_seconds * 1_000),
    )
    event.listen(engine, "connect", _limit_statements(timeout_seconds))
    return engine


def _parse_url(url: str) -> URL:
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except ArgumentError as error:
        raise SettingInvalid("The address of the database cannot be read.") from error


def _limit_statements(seconds: float, idle_seconds: float = IDLE_SECONDS) -> OnConnect:
    """Return a handler that sets the time limits of each new connection: of a statement, and between two of them."""
    limits: dict[str, int | str] = {
        "statement_timeout": int(seconds * 1_000),
        "idle_in_transaction_session_timeout": int(idle_seconds * 1_000),
    }
    return lambda connection, _: set_session(connection, limits)


def _allow_for_pooler(connection: psycopg.Connection[Any], _: object) -> None:
    """Behind a pooler the next transaction may be on a connection with another client's statements under the same names,
    or one on which somebody listens, whose notifications psycopg would keep for ever."""
    if is_pooled(connection):
        connection.add_notify_handler(lambda _: None)
        if not _renames_statements(connection):
            connection.prepare_threshold = None


def _renames_statements(connection: psycopg.Connection[Any]) -> bool:
    """Whether the pooler looks after prepared statements (PgBouncer's ``max_prepared_statements``): it gives them names of
    its own."""
    try:
        # In one transaction, so on one connection to the database.
        with connection.transaction(), connection.cursor() as cursor:
            query = "SELECT bool_and(name LIKE 'PGBOUNCER%') FROM pg_prepared_statements"
            if cursor.execute(query, prepare=True).fetchone() == (True,):
                return True
            cursor.execute("DEALLOCATE ALL")
    except psycopg.errors.DuplicatePreparedStatement:
        # Left there by another client.
        pass
    return False


def _create_engine(address: URL, *, unpooled: bool = False, **options: Any) -> Engine:
    chosen = _CONNECT_OPTIONS | options
    connect = {name: value for name, value in chosen.items() if name not in address.query}
    if unpooled:
        engine = create_engine(
            address,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args=connect,
            hide_parameters=True,
        )
    else:
        engine = create_engine(
            address,
            pool_size=CONNECTIONS,
            max_overflow=0,
            # The connection that was used last: it has prepared its statements, and PostgreSQL has cached their plans.
            pool_use_lifo=True,
            connect_args=connect,
            hide_parameters=True,
        )
    event.listen(engine, "connect", lambda connection, _: copy_keepalive(connection))
    event.listen(engine, "connect", _allow_for_pooler)
    translate_errors(engine, _translate)
    return engine


def _translate(error: BaseException) -> HoldfastError | None:
    match error:
        case psycopg.errors.UniqueViolation() if error.diag.constraint_name == JOB_LOCK_INDEX:
            return TransactionConflict(f"Two servers claimed runs of one thread: {error}")
        case psycopg.errors.UniqueViolation():
            return unique_violation(error.diag.constraint_name)
        case psycopg.errors.ForeignKeyViolation():
            return foreign_key_violation()
        case psycopg.errors.SerializationFailure() | psycopg.errors.DeadlockDetected():
            return TransactionConflict(f"Transactions collided: {error}")
        case psycopg.errors.ReadOnlySqlTransaction():
            return Bug("A read transaction tried to write.")
        case psycopg.DataError():
            return InvalidArgument(f"A value cannot be stored: {error}")
        case psycopg.errors.InsufficientPrivilege():
            return CannotStart(
                f"The user of the database may not do what the server needs: {error}. At its start the server creates "
                f"tables, and the schema {SCHEMA} unless it exists and belongs to that user."
            )
        case psycopg.errors.DiskFull():
            return DiskFull(f"The database cannot write: {error}")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"The database does not answer: {error}")
        case _:
            return None
