"""The servers that share a database, and their leases by its clock. SQLite has the clock that it is given."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from tests.support.blank_store import create_blank_store
from tests.support.queues import add_run, add_threads, describe_server, register
from tests.support.values import Make, moment

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.servers import SqlServers
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.store.transaction import SqlTransaction
from holdfast.core.servers import Server, ServerLoad, ServerProcess
from holdfast.ports.store import Renewal, Store, Transaction

NO_LOAD = ServerLoad()
LOAD = ServerLoad(live_runs=3, is_notified=False, is_draining=True)


class Clock:
    def __init__(self) -> None:
        self.now = moment(0)

    def read(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, cipher: Cipher, clock: Clock) -> AsyncIterator[Store]:
    """SQLite with the clock of the test."""
    path = create_blank_store(tmp_path / "holdfast.db")
    opened = SqliteStore._open(path, cipher, clock=clock.read)
    yield opened
    await opened.close()


async def add(store: Store, server_id: str, lease_seconds: float | None = 10) -> Server:
    return await store.write(
        lambda tx: tx.servers.register(describe_server(server_id), lease_seconds)
    )


async def renew(
    store: Store, server_id: str, lease_seconds: float = 10, load: ServerLoad = NO_LOAD
) -> Renewal | None:
    return await store.write(lambda tx: tx.servers.renew(server_id, lease_seconds, load))


async def list_servers(store: Store) -> list[str]:
    return [server.id for server in await store.read(lambda tx: tx.servers.list())]


async def test_a_server_comes_back_with_all_its_fields(any_store: Store) -> None:
    process = ServerProcess(pid=7, namespace="boot pid:[1]", started_at_tick=2**40)
    given = describe_server("server-a", process=process)
    server = await any_store.write(lambda tx: tx.servers.register(given, 10))
    now = server.started_at
    assert server == replace(
        given,
        started_at=now,
        heartbeat_at=now,
        lease_ends_at=now + timedelta(seconds=10),
        worker_id=server.worker_id,
    )
    assert await any_store.read(lambda tx: tx.servers.find("server-a")) == server
    assert await any_store.read(lambda tx: tx.servers.list()) == [server]
    assert await any_store.read(lambda tx: tx.servers.find("server-b")) is None


async def test_times_are_by_the_clock_of_the_database(any_store: SqlStore) -> None:
    before = await any_store.read(lambda tx: tx.servers.now())
    server = await add(any_store, "server-a")
    renewal = await renew(any_store, "server-a")
    assert renewal is not None
    after = await any_store.read(lambda tx: tx.servers.now())
    assert before <= server.started_at <= renewal.now <= after


@pytest.mark.slow
async def test_the_workers_of_the_job_queue_have_numbers(
    blank_postgres_url: str, cipher: Cipher
) -> None:
    store = await open_store(blank_postgres_url, cipher=cipher)
    numbers = {(await add(store, f"server-{name}")).worker_id for name in "ab"}
    await store.close()
    assert len(numbers) == 2
    assert None not in numbers


async def test_a_renewal_extends_the_lease_and_stores_the_load(store: Store, clock: Clock) -> None:
    await add(store, "server-a", 10)
    clock.advance(9)
    assert await renew(store, "server-a", 20, LOAD) == Renewal(clock.now, True, False)
    server = await store.read(lambda tx: tx.servers.find("server-a"))
    assert server is not None
    assert (server.heartbeat_at, server.lease_ends_at, server.load) == (
        clock.now,
        clock.now + timedelta(seconds=20),
        LOAD,
    )
    assert server.started_at < clock.now


async def test_a_lease_ends_at_its_time(store: Store, clock: Clock) -> None:
    server = await add(store, "server-a", 10)
    clock.advance(9.999)
    assert server.is_alive(clock.now)
    clock.advance(0.001)
    assert not server.is_alive(clock.now)
    assert await renew(store, "server-a") is None


async def test_an_expired_lease_cannot_be_renewed(store: Store, clock: Clock) -> None:
    expired = await add(store, "server-a", 10)
    clock.advance(11)
    assert await renew(store, "server-a", 100) is None
    assert await store.read(lambda tx: tx.servers.find("server-a")) == expired
    clock.advance(-5)
    await store.write(lambda tx: tx.servers.expire("server-a"))
    assert await renew(store, "server-a") is None


async def test_an_ended_lease_cannot_be_renewed(any_store: Store) -> None:
    await add(any_store, "server-a", 600)
    await any_store.write(lambda tx: tx.servers.expire("server-a"))
    assert await renew(any_store, "server-a") is None
    assert await renew(any_store, "server-unknown") is None


@pytest.mark.slow
async def test_a_heartbeat_that_was_held_up_does_not_bring_an_expired_lease_back(
    blank_postgres_url: str, cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be paused between two statements of its heartbeat: what it knew of the time is old by then."""
    store = await open_store(blank_postgres_url, cipher=cipher)
    server = await add(store, "server-a", 600)
    await store.write(lambda tx: tx.servers.expire("server-a"))
    monkeypatch.setattr(SqlServers, "now", lambda _: server.started_at)
    renewal = await renew(store, "server-a", 600)
    await store.close()
    assert renewal is None


async def test_a_lease_without_an_end_stays(store: Store, clock: Clock) -> None:
    server = await add(store, "server-a", None)
    clock.advance(10**8)
    assert server.is_alive(clock.now)


async def test_the_leader_is_the_oldest_server_that_is_alive(store: Store, clock: Clock) -> None:
    async def find_leaders(*server_ids: str) -> list[str]:
        renewals = {server_id: await renew(store, server_id) for server_id in server_ids}
        return [server_id for server_id, item in renewals.items() if item and item.is_leader]

    for server_id in ("server-c", "server-a", "server-b"):
        await add(store, server_id, 10)
        clock.advance(1)
    assert await find_leaders("server-a", "server-b", "server-c") == ["server-c"]
    clock.advance(9)
    assert await find_leaders("server-a", "server-b") == []
    clock.advance(2)
    assert await find_leaders("server-a", "server-b", "server-c") == ["server-a"]
    await store.write(lambda tx: tx.servers.expire("server-a"))
    assert await find_leaders("server-a", "server-b") == ["server-b"]


async def test_a_server_that_is_stopping_does_not_lead(any_store: Store) -> None:
    await add(any_store, "server-a")
    draining = ServerLoad(is_draining=True)
    alone = await renew(any_store, "server-a", load=draining)
    assert alone is not None
    # Somebody must.
    assert alone.is_leader
    await add(any_store, "server-b")
    renewals = [
        await renew(any_store, "server-b"),
        await renew(any_store, "server-a", load=draining),
        await renew(any_store, "server-a"),
    ]
    assert [item and item.is_leader for item in renewals] == [True, False, True]


async def test_a_server_knows_whether_others_are_alive(any_store: Store) -> None:
    async def has_peers() -> bool:
        renewal = await renew(any_store, "server-a")
        assert renewal is not None
        return renewal.has_peers

    await add(any_store, "server-a")
    assert not await has_peers()
    await add(any_store, "server-b")
    assert await has_peers()
    await any_store.write(lambda tx: tx.servers.expire("server-b"))
    assert not await has_peers()


async def test_servers_are_listed_from_the_oldest_to_the_youngest(
    store: Store, clock: Clock
) -> None:
    for server_id in ("server-c", "server-a", "server-b"):
        await add(store, server_id)
        clock.advance(1)
    await store.write(lambda tx: tx.servers.expire("server-a"))
    assert await list_servers(store) == ["server-c", "server-a", "server-b"]


async def test_long_dead_servers_are_deleted(store: Store, clock: Clock) -> None:
    await add(store, "server-a", 10)
    await add(store, "server-b", 20)
    await add(store, "server-c", None)
    clock.advance(15)
    assert await store.write(lambda tx: tx.servers.delete_dead(clock.now)) == 1
    assert await list_servers(store) == ["server-b", "server-c"]


@pytest.mark.slow
async def test_the_worker_of_a_deleted_server_is_deleted_too(
    blank_postgres_url: str, cipher: Cipher, make: Make
) -> None:
    """Its jobs stay, until its runs are released."""
    store = await open_store(blank_postgres_url, cipher=cipher)
    dead, alive = [await register(store, f"server-{name}") for name in "ab"]
    [agent_id] = await add_threads(store, make, 1)
    await add_run(store, make.run(make.thread(make.agent(id=agent_id))), dead)
    await store.write(lambda tx: tx.servers.expire(dead.server_id))

    def delete_dead(tx: Transaction) -> tuple[int, list[int], int]:
        assert isinstance(tx, SqlTransaction)
        count = tx.servers.delete_dead(tx.servers.now())
        workers = tx._connection.execute(
            text("SELECT id FROM holdfast_queue.procrastinate_workers")
        )
        return count, [*workers.scalars()], tx.queue.release_expired()

    deleted = await store.write(delete_dead)
    await store.close()
    assert deleted == (1, [alive.worker_id], 1)
