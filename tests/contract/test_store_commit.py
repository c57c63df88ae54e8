"""A failed commit ends one transaction; the store goes on working, and says whether the outcome is known."""

import asyncio
import threading

import pytest
from sqlalchemy import event
from tests.support.values import Make

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.runs import Run
from holdfast.errors import DiskFull, HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.ports.store import Transaction

WAIT_SECONDS = 10


def violate_at_commit(tx: Transaction) -> None:
    """A dangling foreign key that the database only checks at commit."""
    connection = tx.runs._connection  # type: ignore[attr-defined]  # a fault that no port can make
    connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
    connection.exec_driver_sql(
        "INSERT INTO run_requests (run_id, body) VALUES ('run-of-nobody', '{}')"
    )


async def test_a_commit_that_fails_leaves_the_store_usable(store: SqliteStore) -> None:
    with pytest.raises(HoldfastError):
        await store.write(violate_at_commit)
    assert await store.write(lambda tx: tx.runs.list_live()) == []


async def test_nothing_of_a_failed_commit_stays(store: SqliteStore) -> None:
    with pytest.raises(HoldfastError):
        await store.write(violate_at_commit)

    def count(tx: Transaction) -> int:
        connection = tx.runs._connection  # type: ignore[attr-defined]  # see above
        return int(connection.exec_driver_sql("SELECT count(*) FROM run_requests").scalar())

    assert await store.read(count) == 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [(StoreUnavailable("gone"), OutcomeUnknown), (DiskFull("no room"), DiskFull)],
)
async def test_a_commit_that_fails_has_an_unknown_outcome_unless_the_disk_is_full(
    store: SqliteStore, fault: HoldfastError, told: type[HoldfastError]
) -> None:
    def fail(_: object) -> None:
        raise fault

    event.listen(store._writer, "commit", fail)
    with pytest.raises(told) as failed:
        await store.write(lambda tx: tx.write_probe())
    event.remove(store._writer, "commit", fail)
    assert type(failed.value) is told
    await store.write(lambda tx: tx.write_probe())


@pytest.mark.slow
async def test_a_run_that_is_stored_again_while_its_first_commit_goes_on_is_stored_once(
    blank_postgres_url: str, cipher: Cipher, make: Make
) -> None:
    """After a lost connection the database may still be busy with the commit that nobody waits for."""
    store = await open_store(blank_postgres_url, cipher=cipher)
    agent = make.agent()
    thread = make.thread(agent)
    run = make.run(thread)
    is_written, was_searched = threading.Event(), threading.Event()

    def add_and_wait(tx: Transaction) -> Run:
        tx.runs.add(run)
        is_written.set()
        assert was_searched.wait(WAIT_SECONDS)
        return run

    def find_or_add(tx: Transaction) -> Run:
        assert is_written.wait(WAIT_SECONDS)
        found = tx.runs.find(run.id)
        was_searched.set()
        if found is None:
            tx.runs.add(run)
        return found or run

    await store.write(lambda tx: tx.agents.add(agent))
    await store.write(lambda tx: tx.threads.add(thread))
    both = asyncio.gather(store.write(add_and_wait), store.write(find_or_add))
    stored = await asyncio.wait_for(both, WAIT_SECONDS)
    await store.close()
    assert [item.id for item in stored] == [run.id] * 2
