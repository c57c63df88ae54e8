"""The cache of vectors of a SQLite store: bounded, filled with what is new, and never needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.stored_vectors import MODEL, add_with_vectors, query_vector
from tests.support.values import Make

from holdfast.adapters.store import vector_cache, vector_search
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.sql_store import VectorOptions
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.store.vector_cache import VectorCache
from holdfast.core.archives import Archive
from holdfast.core.embeddings import EmbeddedText, to_vector
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.passages import PassageFilter
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
# A vector of two numbers of four bytes, and the number of its row.
ROW_BYTES = 2 * 4 + 8


@pytest.fixture(params=[0, 10 * ROW_BYTES, 1_000_000], ids=["no cache", "small cache", "cache"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, cipher: Cipher
) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(
        tmp_path / "h.db", cipher=cipher, vectors=VectorOptions(request.param)
    )
    yield opened
    await opened.close()


def cache_of(store: SqliteStore) -> VectorCache:
    assert store._vector_cache is not None
    return store._vector_cache


async def add_archive(store: Store, make: Make, count: int) -> Archive:
    """An archive whose passage p0 is nearest to (1, 0), then p1, and so on."""
    archive = make.archive(embedding=MODEL)
    await store.write(lambda tx: tx.archives.add(archive))
    passages = [make.passage(archive, f"p{number}") for number in range(count)]
    await add_with_vectors(store, passages, [(1.0, number / 100) for number in range(count)])
    return archive


async def find(store: Store, *archives: Archive, limit: int = 3) -> list[str]:
    where = PassageFilter(archive_ids=tuple(archive.id for archive in archives) or None)
    near = [query_vector(1.0, 0.0)]
    found = await store.read(lambda tx: tx.passages.search(ORG, where, "zzz", limit, near))
    return [item.passage.text for item in found]


async def test_a_search_finds_the_same_with_and_without_a_cache(
    store: SqliteStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "BLOCK_ROWS", 4)
    monkeypatch.setattr(vector_search, "BLOCK_ROWS", 4)
    first = await add_archive(store, make, 9)
    await add_archive(store, make, 30)

    for _ in range(2):
        assert await find(store, first) == ["p0", "p1", "p2"]
        assert sorted(await find(store, limit=4)) == ["p0", "p0", "p1", "p1"]
    assert cache_of(store).size_bytes <= cache_of(store)._max_bytes


async def test_what_is_new_is_found_at_once(store: SqliteStore, make: Make) -> None:
    archive = await add_archive(store, make, 5)
    assert (await find(store, archive))[0] == "p0"

    await add_with_vectors(store, [make.passage(archive, "new")], [(1.0, -0.001)])

    assert (await find(store, archive)) == ["p0", "new", "p1"]


async def test_what_was_used_longest_ago_is_dropped(
    tmp_path: Path, cipher: Cipher, make: Make
) -> None:
    options = VectorOptions(10 * ROW_BYTES)
    store = await SqliteStore.open(tmp_path / "h.db", cipher=cipher, vectors=options)
    try:
        archives = [await add_archive(store, make, 5) for _ in range(3)]
        for archive in archives:
            await find(store, archive)
        kept = {key[1] for key in cache_of(store)._containers}
        assert kept == {archive.id for archive in archives[1:]}
        assert cache_of(store).size_bytes == 10 * ROW_BYTES
    finally:
        await store.close()


async def test_deleted_vectors_do_not_fill_the_memory(
    tmp_path: Path, cipher: Cipher, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_cache, "_SEARCHES_BETWEEN_COUNTS", 2)
    store = await SqliteStore.open(tmp_path / "h.db", cipher=cipher)
    try:
        archive = await add_archive(store, make, 10)
        await find(store, archive)
        await store.write(lambda tx: tx.passages.delete_matching(ORG, PassageFilter(contains="p")))
        await add_with_vectors(store, [make.passage(archive, "new")], [(1.0, 0.0)])
        for _ in range(2):
            assert await find(store, archive) == ["new"]
        assert cache_of(store).size_bytes == ROW_BYTES
    finally:
        await store.close()


async def test_a_vector_that_was_rolled_back_is_seen_by_nobody(
    store: SqliteStore, make: Make
) -> None:
    """Its number is used again, so a cache that had seen it would be wrong for ever."""
    archive = await add_archive(store, make, 3)
    near = [query_vector(1.0, 0.0)]

    def fail(tx: Transaction) -> None:
        (stored,) = tx.passages.add([make.passage(archive, "gone")], model=MODEL)
        tx.passage_vectors.save([EmbeddedText(stored.position, MODEL, to_vector([1.0, 0.0]))])
        found = tx.passages.search(ORG, PassageFilter(), "zzz", 9, near)
        assert "gone" in [item.passage.text for item in found]
        raise LookupError("on purpose")

    with pytest.raises(LookupError):
        await store.write(fail)
    await add_with_vectors(store, [make.passage(archive, "kept")], [(1.0, 5.0)])

    assert await find(store, archive, limit=9) == ["p0", "p1", "p2", "kept"]
