"""A failed commit ends one transaction; the store goes on working."""

import pytest

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import HoldfastError
from holdfast.ports.store import Transaction


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
