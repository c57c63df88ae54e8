"""Waits for PostgreSQL are bounded, so a run never hangs on it (wire-v1 §5.7)."""

import asyncio
import threading

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.postgres import PostgresStore, _create_engine
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Transaction

pytestmark = pytest.mark.slow


async def test_a_statement_that_makes_no_progress_is_given_up(
    postgres_url: str, cipher: Cipher, make: Make
) -> None:
    store = await PostgresStore.open(postgres_url, cipher=cipher, statement_seconds=0.1)
    agent = make.agent()
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE agents IN ACCESS EXCLUSIVE MODE")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="statement timeout"):
                await store.write(lambda tx: tx.agents.add(agent))
            with pytest.raises(StoreUnavailable, match="statement timeout"):
                await store.read(lambda tx: tx.agents.get(agent.organization_id, agent.id))

    await store.write(lambda tx: tx.agents.add(agent))
    await store.close()


async def test_a_transaction_whose_server_is_paused_gives_its_locks_back_and_is_run_again(
    postgres_url: str, cipher: Cipher, make: Make
) -> None:
    store = await PostgresStore.open(postgres_url, cipher=cipher, idle_seconds=0.1)
    agent = make.agent()
    has_locked, may_go_on = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        has_locked.set()
        assert may_go_on.wait(WAIT_SECONDS)
        # The first statement after the pause is refused; the second attempt has no pause.
        tx.agents.get(agent.organization_id, agent.id)

    writing = asyncio.create_task(store.write(work))
    await asyncio.to_thread(has_locked.wait, WAIT_SECONDS)
    with psycopg.connect(postgres_url) as other:
        other.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'".encode())
        other.execute("LOCK TABLE agents IN ACCESS EXCLUSIVE MODE")
        may_go_on.set()

    await writing
    found = await store.read(lambda tx: tx.agents.get(agent.organization_id, agent.id))
    await store.close()
    assert found.id == agent.id


def test_a_connection_that_was_cut_off_is_noticed(postgres_url: str) -> None:
    """The settings of both sides that detect it. How they do is in tests/weather/test_hosts.py."""
    address = make_url(postgres_url).set(drivername="postgresql+psycopg")
    patient = address.update_query_dict({"tcp_user_timeout": "90000"})
    for url, gives_up_ms in ((address, "30000"), (patient, "90000")):
        engine = _create_engine(url, unpooled=True)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            parameters = driver.info.get_parameters()
        engine.dispose()
        assert parameters["tcp_user_timeout"] == gives_up_ms
        assert int(parameters["keepalives_idle"]) + 5 * int(parameters["keepalives_count"]) <= 30
