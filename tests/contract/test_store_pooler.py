"""A store behind a pooler that gives each transaction another connection: nothing of one transaction stays for the next."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.support.pgbouncer import PGBOUNCER_PROBLEM, PgBouncer, run_pgbouncer

from holdfast.adapters.bell.sender import CHANNEL
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.heartbeat_connection import HeartbeatConnection
from holdfast.adapters.store.postgres import PostgresStore
from holdfast.core.servers import ServerLoad

needs_pgbouncer = pytest.mark.skipif(bool(PGBOUNCER_PROBLEM), reason=str(PGBOUNCER_PROBLEM))
pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 60
# psycopg prepares what it has executed five times.
OFTEN = 10


@pytest.fixture
def pooler(blank_postgres_url: str) -> Iterator[PgBouncer]:
    """One connection to the database for all: what one leaves there the next one finds."""
    with run_pgbouncer(blank_postgres_url, pool_mode="transaction", default_pool_size="1") as made:
        yield made


@pytest.fixture
async def pooled_store(pooler: PgBouncer, cipher: Cipher) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(pooler.url, cipher=cipher)
    yield store
    await store.close()


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


@needs_pgbouncer
async def test_a_pooled_store_leaves_no_statement_behind_but_those_that_the_pooler_renames(
    pooler: PgBouncer, pooled_store: PostgresStore
) -> None:
    for _ in range(OFTEN):
        await pooled_store.write(lambda transaction: transaction.write_probe())

    query = "SELECT count(*) FROM pg_prepared_statements WHERE name NOT LIKE 'PGBOUNCER%'"
    assert ask(pooler.url, query) == 0


@needs_pgbouncer
async def test_a_pooled_store_leaves_no_timeout_behind(
    pooler: PgBouncer, pooled_store: PostgresStore
) -> None:
    await pooled_store.write(lambda transaction: transaction.write_probe())

    assert ask(pooler.url, "SHOW statement_timeout") == "0"


@needs_pgbouncer
def test_pooled_heartbeats_leave_no_timeout_behind(pooler: PgBouncer) -> None:
    heartbeats = HeartbeatConnection(pooler.url, timeout_seconds=2)

    assert heartbeats.renew("server-unknown", 10, ServerLoad()) is None

    heartbeats.close()
    assert ask(pooler.url, "SHOW statement_timeout") == "0"


@needs_pgbouncer
def test_pooled_heartbeats_work_if_each_statement_gets_another_connection(
    blank_postgres_url: str,
) -> None:
    with run_pgbouncer(
        blank_postgres_url,
        pool_mode="transaction",
        default_pool_size="2",
        server_round_robin="1",
    ) as pooler:
        with psycopg.connect(pooler.url) as one, psycopg.connect(pooler.url) as other:
            one.execute("SELECT 1")
            other.execute("SELECT 1")
        for _ in range(OFTEN):
            heartbeats = HeartbeatConnection(pooler.url, timeout_seconds=20)
            assert heartbeats.renew("server-unknown", 10, ServerLoad()) is None
            heartbeats.close()


@needs_pgbouncer
async def test_servers_that_start_at_once_behind_a_pooler_all_start(
    postgres_url: str, cipher: Cipher
) -> None:
    with run_pgbouncer(postgres_url, pool_mode="transaction", default_pool_size="2") as pooler:
        async with asyncio.timeout(PATIENCE_SECONDS):
            stores = await asyncio.gather(
                *(PostgresStore.open(pooler.url, cipher=cipher) for _ in range(4))
            )
        for store in stores:
            assert await store.read(lambda transaction: transaction.runs.list_live()) == []
            await store.close()


@needs_pgbouncer
async def test_a_pooled_store_keeps_no_notification_that_was_meant_for_others(
    pooler: PgBouncer, pooled_store: PostgresStore
) -> None:
    with psycopg.connect(pooler.url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{CHANNEL}"'.encode())
    with pooled_store._writer.connect() as connection:
        for number in range(OFTEN):
            connection.exec_driver_sql(f"SELECT pg_notify('{CHANNEL}', '{number}')")
            connection.commit()
        raw: psycopg.Connection[Any] = connection.connection.dbapi_connection  # type: ignore[assignment]  # psycopg's

        # Asking psycopg for them would receive more.
        assert not raw._notifies_backlog


@needs_pgbouncer
async def test_a_store_opens_at_a_pooler_where_another_client_has_left_a_statement(
    pooler: PgBouncer, cipher: Cipher
) -> None:
    with psycopg.connect(pooler.url) as careless:
        careless.execute("SELECT 1", prepare=True)

    store = await PostgresStore.open(pooler.url, cipher=cipher)
    for _ in range(OFTEN):
        await store.write(lambda transaction: transaction.write_probe())
    await store.close()


async def test_a_store_without_a_pooler_keeps_its_statements_and_its_timeout(
    blank_postgres_url: str, cipher: Cipher
) -> None:
    store = await PostgresStore.open(blank_postgres_url, cipher=cipher, statement_seconds=7)
    for _ in range(OFTEN):
        await store.read(lambda transaction: transaction.runs.list_live())

    with store._writer.connect() as connection:
        prepared = connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements")
        assert prepared.scalar_one() > 0
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "7s"
    await store.close()
