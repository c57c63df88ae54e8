"""Waits for PostgreSQL are bounded, so a run never hangs on it (wire-v1 §5.7)."""

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.values import Make

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.postgres import PostgresStore, _create_engine
from holdfast.errors import StoreUnavailable

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


def test_a_connection_that_was_cut_off_is_noticed(postgres_url: str) -> None:
    """A network that drops all packets cannot be tested here; the driver's settings that detect it can."""
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
