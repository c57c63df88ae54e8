"""An outage of the store does not fill the disk with log lines."""

import io
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.doubles.unreliable_store import with_faults
from tests.support.unreliable_site import Site, open_unreliable_site

from holdfast import logs
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import DiskFull, StoreUnavailable
from holdfast.ports.store import Transaction

REQUESTS = 300
MAX_LOG_CHARS = 50_000


@pytest.fixture
async def site(store: SqliteStore) -> AsyncIterator[Site]:
    async with open_unreliable_site(store, busy_wait_seconds=30.0) as site:
        yield site


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the server would write to its standard error."""
    text = io.StringIO()
    handler = logs.OutageHandler((StoreUnavailable,))
    handler.setStream(text)
    handler.setFormatter(logs.EventFormatter())
    logging.getLogger("holdfast").addHandler(handler)
    yield text
    logging.getLogger("holdfast").removeHandler(handler)


async def test_an_outage_logs_once_and_then_counts(site: Site, log: io.StringIO) -> None:
    agent = await site.rig.make_agent()
    site.store.failures = REQUESTS
    with with_faults():
        for _ in range(REQUESTS):
            answer = await site.http.get(f"/v1/agents/{agent.id}")
            assert answer.status_code == 503
    assert log.getvalue().count("Traceback") <= 1 + log.getvalue().count("The above exception")
    assert log.getvalue().count("request.failed") == 1
    assert len(log.getvalue()) < MAX_LOG_CHARS


async def test_the_store_tells_when_it_works_again(store: SqliteStore, log: io.StringIO) -> None:
    def execute(tx: Transaction, statement: str) -> None:
        connection = tx._connection  # type: ignore[attr-defined]  # a fault that no port can make
        connection.exec_driver_sql(statement)

    await store.write(lambda tx: execute(tx, "CREATE TABLE load (bytes BLOB)"))
    await store.write(lambda tx: execute(tx, "PRAGMA max_page_count=1"))
    for _ in range(3):
        with pytest.raises(DiskFull):
            await store.write(lambda tx: execute(tx, "INSERT INTO load VALUES (zeroblob(1000000))"))
        # Reading works all the time, which is not the end of it.
        await store.read(lambda tx: tx.runs.list_live())
    assert logs.RECOVERED not in log.getvalue()
    await store.write(lambda tx: execute(tx, "PRAGMA max_page_count=100000"))
    assert log.getvalue().count(logs.RECOVERED) == 1
