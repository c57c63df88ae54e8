"""The upkeep of the index of words, on both databases."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, insert, make_url, text
from tests.support.rig import Rig
from tests.support.servers import make_server
from tests.support.values import Make, add_thread, moment

from holdfast.adapters.store import schema_upgrade, tables
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.messages import MESSAGE
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.message_search import MessageFilter
from holdfast.core.messages import Message
from holdfast.core.threads import Thread
from holdfast.engine import search_upkeep
from holdfast.engine.search_upkeep import SearchUpkeep
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Store, Transaction

T = TypeVar("T")

ORG = DEFAULT_ORGANIZATION_ID
VERSION = make_server().version


def upkeep_of(store: Store) -> SearchUpkeep:
    return SearchUpkeep(Rig(store).services, VERSION)


def connection_of(tx: Transaction) -> Any:
    transaction: Any = tx
    return transaction._connection


async def count_rows(store: Store, table: str) -> int:
    return await store.read(
        lambda tx: int(connection_of(tx).execute(text(f"SELECT count(*) FROM {table}")).scalar())
    )


async def append(store: Store, thread: Thread, make: Make, *texts: str) -> Sequence[Message]:
    messages = [make.message(thread, each) for each in texts]
    return await store.write(lambda tx: tx.messages.append(messages))


async def forget_words(store: Store, *messages: Message) -> None:
    """As if a version without the index had stored them."""
    key = "rowid" if isinstance(store, SqliteStore) else "position"
    for message in messages:
        query = text(f"DELETE FROM message_index WHERE {key} = {message.position}")
        await store.write(lambda tx: connection_of(tx).execute(query).rowcount)  # noqa: B023 - awaited at once


async def search(store: Store, query: str, limit: int = 100) -> set[str]:
    found = await store.read(lambda tx: tx.messages.search(ORG, MessageFilter(), query, limit))
    return {item.message.text for item in found}


class CountingStore:
    """Counts the transactions that write, and fails instead of one of them."""

    def __init__(self, store: Store, fails_at: int = 0) -> None:
        self._store = store
        self._fails_at = fails_at
        self.writes = 0

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self.writes += 1
        if self.writes == self._fails_at:
            raise StoreUnavailable("It is gone.")
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None:
        await self._store.close()


async def test_the_words_of_deleted_messages_are_removed(
    any_store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "PAUSE_SECONDS", 0)
    thread, other = await add_thread(any_store, make), await add_thread(any_store, make)
    await append(any_store, thread, make, *(f"fact {number}" for number in range(5_000)))
    await append(any_store, other, make, "fact of another")
    await any_store.write(lambda tx: tx.agents.delete(ORG, thread.agent_id))
    assert await search(any_store, "fact") == {"fact of another"}
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact of another"}
    assert await count_rows(any_store, "message_index") == 1
    if isinstance(any_store, SqliteStore):
        assert await count_rows(any_store, "index_removals") == 0


async def test_the_words_of_deleted_passages_are_removed(any_store: Store, make: Make) -> None:
    archive = make.archive()
    huge = "hay " * 20_000
    passages = [make.passage(archive, text=each) for each in ("one", huge, huge, "four")]

    def work(tx: Transaction) -> None:
        tx.archives.add(archive)
        tx.passages.add(passages)

    await any_store.write(work)
    await any_store.write(lambda tx: tx.archives.delete(ORG, archive.id))
    counting = CountingStore(any_store)
    await upkeep_of(counting).catch_up()
    assert await count_rows(any_store, "passage_index") == 0
    if isinstance(any_store, SqliteStore):
        # Long ones are not removed together.
        assert counting.writes == 3


def store_as_before(connection: Any, thread: Thread, messages: Sequence[Message]) -> None:
    """Write these as a version without the index did."""
    owned = {
        "organization_id": ORG,
        "created_at": moment(0),
        "updated_at": moment(0),
        "body": "{}",
    }
    agent_id = thread.agent_id
    connection.execute(insert(tables.agents), {"id": agent_id, "name": "old", **owned})
    connection.execute(insert(tables.threads), {"id": thread.id, "agent_id": agent_id, **owned})
    rows = [MESSAGE.to_row(message) | {"organization_id": ORG} for message in messages]
    for row in rows:
        row.pop("position")
    connection.execute(insert(tables.messages), rows)


async def test_messages_from_before_the_index_are_found_after_an_upgrade(
    store_url: str, cipher: Cipher, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "MESSAGES_AT_ONCE", 7)
    thread = make.thread(make.agent())
    old = [make.message(thread, f"an old fact {number}") for number in range(50)]
    url = make_url(store_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.begin()
        schema_upgrade.run_migrations(connection, "0002")
        store_as_before(connection, thread, old)
        connection.commit()
    engine.dispose()
    store = await open_store(store_url, cipher=cipher)
    new = make.message(thread, "a new fact")
    await store.write(lambda tx: tx.messages.append([new]))
    assert await search(store, "fact") == {"a new fact"}
    await upkeep_of(store).catch_up()
    assert await search(store, "fact") == {"a new fact", *(message.text for message in old)}
    await store.close()


async def test_all_is_done_once_and_an_idle_server_writes_nothing(
    any_store: Store, make: Make
) -> None:
    thread = await add_thread(any_store, make)
    rows = await append(any_store, thread, make, "fact one", "fact two", "fact three")
    await forget_words(any_store, rows[1])
    counting = CountingStore(any_store)
    await upkeep_of(counting).catch_up()
    assert await search(any_store, "fact") == {"fact one", "fact two", "fact three"}
    assert counting.writes == 1
    await upkeep_of(counting).catch_up()
    assert counting.writes == 1
    # What is checked is not checked again.
    await forget_words(any_store, rows[0])
    (later,) = await append(any_store, thread, make, "fact four")
    await forget_words(any_store, later)
    await upkeep_of(counting).catch_up()
    assert await search(any_store, "fact") == {"fact two", "fact three", "fact four"}


async def test_an_interrupted_pass_goes_on_where_it_was(
    any_store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "MESSAGES_AT_ONCE", 2)
    thread = await add_thread(any_store, make)
    rows = await append(any_store, thread, make, *(f"fact {number}" for number in range(9)))
    await forget_words(any_store, *rows)
    with pytest.raises(StoreUnavailable):
        await upkeep_of(CountingStore(any_store, fails_at=3)).catch_up()
    # The newest first.
    assert await search(any_store, "fact") == {f"fact {number}" for number in (5, 6, 7, 8)}
    counting = CountingStore(any_store)
    await upkeep_of(counting).catch_up()
    assert await search(any_store, "fact") == {row.text for row in rows}
    assert counting.writes == 3


async def test_two_leaders_at_the_same_time_index_each_message_once(
    any_store: Store, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "MESSAGES_AT_ONCE", 3)
    monkeypatch.setattr(search_upkeep, "PAUSE_SECONDS", 0)
    thread = await add_thread(any_store, make)
    rows = await append(any_store, thread, make, *(f"fact {number}" for number in range(40)))
    await forget_words(any_store, *rows)
    await asyncio.gather(*(upkeep_of(any_store).catch_up() for _ in range(3)))
    assert await count_rows(any_store, "message_index") == 40
    assert len(await search(any_store, "fact")) == 40


async def test_while_a_server_of_another_version_is_listed_nothing_is_certain(
    any_store: Store, make: Make
) -> None:
    thread = await add_thread(any_store, make)
    older = replace(make_server(), version="0.0.1")
    await any_store.write(lambda tx: tx.servers.register(older, 60.0))
    first, late = await append(any_store, thread, make, "fact one", "fact two")
    await forget_words(any_store, first)
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact one", "fact two"}
    # It stores one whose position is lower than what was looked at: its transaction began earlier and ended later.
    await forget_words(any_store, late)
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact one"}
    (new,) = await append(any_store, thread, make, "fact three")
    await forget_words(any_store, new)
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact one", "fact three"}
    # Even if it has died: it is listed for an hour.
    await any_store.write(lambda tx: tx.servers.expire(older.id))
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact one", "fact three"}
    await any_store.write(lambda tx: tx.servers.delete_dead(tx.servers.now()))
    await upkeep_of(any_store).catch_up()
    assert await search(any_store, "fact") == {"fact one", "fact two", "fact three"}


async def test_a_batch_ends_when_it_has_much_text(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    rows = await append(any_store, thread, make, *(f"fact {n} " + "hay " * 6_000 for n in range(4)))
    await forget_words(any_store, *rows)
    counting = CountingStore(any_store)
    await upkeep_of(counting).catch_up()
    assert len(await search(any_store, "fact")) == 4
    assert counting.writes >= 4


async def test_an_outage_of_the_store_does_not_end_the_upkeep(
    store: SqliteStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_upkeep, "POLL_SECONDS", 0)
    thread = await add_thread(store, make)
    (row,) = await append(store, thread, make, "fact")
    await forget_words(store, row)
    task = asyncio.create_task(upkeep_of(CountingStore(store, fails_at=1)).run())
    async with asyncio.timeout(20):
        while not await search(store, "fact"):
            assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
