"""The write-ahead log of SQLite stays small, and commits wait for the disk if the operator wants that."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.sqlite import MAX_LOG_BYTES, SqliteStore
from holdfast.ports.store import Transaction

WRITES = 300
BYTES_PER_WRITE = 100_000
WAIT_SECONDS = 10


def execute(tx: Transaction, statement: str) -> list[Any]:
    connection = tx._connection  # type: ignore[attr-defined]  # load and settings that no port has
    result = connection.exec_driver_sql(statement)
    return list(result.all()) if result.returns_rows else []


def file_size(path: Path) -> int:
    return path.stat().st_size


async def write_much(store: SqliteStore, log: Path) -> int:
    """Write 30 MB; return the largest size of the log."""
    largest = 0
    await store.write(lambda tx: execute(tx, "CREATE TABLE load (bytes BLOB)"))
    for _ in range(WRITES):
        await store.write(
            lambda tx: execute(tx, f"INSERT INTO load VALUES (zeroblob({BYTES_PER_WRITE}))")
        )
        largest = max(largest, file_size(log))
    return largest


async def test_the_log_stays_small_under_load(store: SqliteStore, tmp_path: Path) -> None:
    assert await write_much(store, tmp_path / "holdfast.db-wal") <= MAX_LOG_BYTES


class Relay:
    """Readers whose snapshots overlap: each lasts until the next one has begun."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self.is_over = False

    def read(self, tx: Transaction) -> None:
        execute(tx, "SELECT count(*) FROM runs")
        with self._changed:
            self._count += 1
            mine = self._count
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_over or self._count > mine, WAIT_SECONDS)

    def end(self) -> None:
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


async def test_readers_that_overlap_without_a_gap_do_not_make_the_log_grow(
    store: SqliteStore, tmp_path: Path
) -> None:
    relay = Relay()

    async def keep_reading() -> None:
        while not relay.is_over:
            await store.read(relay.read)

    readers = [asyncio.create_task(keep_reading()) for _ in range(2)]
    try:
        largest = await write_much(store, tmp_path / "holdfast.db-wal")
    finally:
        relay.end()
        await asyncio.wait_for(asyncio.gather(*readers), WAIT_SECONDS)
    assert largest <= 2 * MAX_LOG_BYTES


@pytest.mark.parametrize(("survive_power_cut", "synchronous"), [(False, 1), (True, 2)])
async def test_commits_wait_for_the_disk_if_a_power_cut_must_cost_nothing(
    tmp_path: Path, cipher: Cipher, survive_power_cut: bool, synchronous: int
) -> None:
    path = tmp_path / "holdfast.db"
    store = await SqliteStore.open(path, cipher=cipher, survive_power_cut=survive_power_cut)
    try:
        assert await store.write(lambda tx: execute(tx, "PRAGMA synchronous")) == [(synchronous,)]
    finally:
        await store.close()
