"""A transaction that writes for too long is undone, and the next one goes on."""

import pytest
from sqlalchemy import text
from tests.support.values import Make

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.store.time_limit import WRITE_SECONDS
from holdfast.core.blocks import Block, BlockQuery
from holdfast.core.paging import Page
from holdfast.errors import NotFound, WriteTimedOut
from holdfast.ports.store import Transaction

SHORT_SECONDS = 0.05
QUERY = BlockQuery(page=Page(limit=1))
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def assert_undone(store: SqlStore, block: Block) -> None:
    """The block is not stored, and the store takes it now."""
    store._write_seconds = WRITE_SECONDS
    with pytest.raises(NotFound):
        await store.read(lambda tx: tx.blocks.get(block.organization_id, block.id))
    await store.write(lambda tx: tx.blocks.add(block))
    assert await store.read(lambda tx: tx.blocks.get(block.organization_id, block.id)) == block


async def test_a_transaction_of_many_statements_is_undone_when_its_time_is_over(
    any_store: SqlStore, make: Make
) -> None:
    block = make.block()

    def write_forever(tx: Transaction) -> None:
        tx.blocks.add(block)
        while True:
            tx.blocks.count(block.organization_id, QUERY)

    any_store._write_seconds = SHORT_SECONDS
    with pytest.raises(WriteTimedOut, match="HOLDFAST_WRITE_SECONDS"):
        await any_store.write(write_forever)
    await assert_undone(any_store, block)


async def test_prepared_statements_have_the_same_limit(any_store: SqlStore, make: Make) -> None:
    block = make.block()

    def write_forever(tx: Transaction) -> None:
        tx.blocks.add(block)
        while True:
            tx.calls.list_open("agent-none")

    any_store._write_seconds = SHORT_SECONDS
    with pytest.raises(WriteTimedOut):
        await any_store.write(write_forever)
    await assert_undone(any_store, block)


async def test_one_long_statement_is_interrupted(store: SqliteStore, make: Make) -> None:
    block = make.block()

    def write_forever(tx: Transaction) -> None:
        tx.blocks.add(block)
        tx.blocks._connection.execute(text(ENDLESS))  # type: ignore[attr-defined] # of SQL stores only

    store._write_seconds = SHORT_SECONDS
    with pytest.raises(WriteTimedOut):
        await store.write(write_forever)
    await assert_undone(store, block)


async def test_a_read_has_no_such_limit(any_store: SqlStore) -> None:
    any_store._write_seconds = 0
    assert await any_store.read(lambda tx: tx.blocks.count("org-none", QUERY)) == 0
