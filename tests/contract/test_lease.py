"""The leases: how a server keeps its runs, and how it notices that it may have lost them."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import pytest
from tests.doubles.store import OutageStore
from tests.support.queues import add_run, add_threads, describe_server, find_run
from tests.support.tcp_proxy import TcpProxy, proxy_postgres
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.lease import heartbeat
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.lease.factory import open_lease
from holdfast.adapters.lease.heartbeat import OWN_PART, HeartbeatLease
from holdfast.adapters.lease.process import identify_process
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.heartbeat_connection import HeartbeatConnection
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.runs import Run
from holdfast.core.servers import Claimant, Role, Server, ServerLoad, ServerProcess
from holdfast.ports.store import Renewal, Store

# A lease that does not expire in the database during a test, with heartbeats that are frequent all the same.
LEASE_SECONDS = 600.0
BEAT_SECONDS = 0.05
# How long one heartbeat may take.
ANSWER_SECONDS = 1.0
# By a clock of the server that is so much faster, the lease lasts two seconds.
FAST = 300.0

LOAD = ServerLoad(live_runs=2)


class Site:
    """Opens the leases of a test on one PostgreSQL, and closes them."""

    def __init__(self, store: SqlStore, url: str, stack: AsyncExitStack) -> None:
        self.store = store
        self.times: list[datetime] = []
        self._url = url
        self._stack = stack
        self._count = 0

    def open(
        self,
        *,
        url: str | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> HeartbeatLease:
        """``url``: the way of the heartbeats to the database; ``store``: that of everything else."""
        lease = HeartbeatLease(
            store or self.store,
            HeartbeatConnection(url or self._url, ANSWER_SECONDS),
            new_server=self._describe,
            lease_seconds=LEASE_SECONDS,
            read_load=lambda: LOAD,
            note_time=self.times.append,
            clock=clock,
        )
        self._stack.push_async_callback(lease.aclose)
        return lease

    async def register(self, **options: object) -> HeartbeatLease:
        lease = self.open(**options)  # type: ignore[arg-type]  # passed on as they are
        await asyncio.wait_for(lease.register(), WAIT_SECONDS)
        return lease

    async def find(self, lease: HeartbeatLease) -> Server:
        return await self.find_id(server_id(lease))

    async def find_id(self, wanted: str) -> Server:
        server = await self.store.read(lambda tx: tx.servers.find(wanted))
        assert server is not None
        return server

    async def is_alive(self, wanted: str) -> bool:
        now = await self.store.read(lambda tx: tx.servers.now())
        return (await self.find_id(wanted)).is_alive(now)

    def _describe(self) -> Server:
        self._count += 1
        return describe_server(f"server-{self._count}", process=identify_process())


@pytest.fixture
async def site(
    blank_postgres_url: str, cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr(heartbeat, "HEARTBEATS_PER_LEASE", LEASE_SECONDS / BEAT_SECONDS)
    monkeypatch.setattr(heartbeat, "_REGISTER_RETRY_SECONDS", BEAT_SECONDS)
    store = await open_store(blank_postgres_url, cipher=cipher)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        yield Site(store, blank_postgres_url, stack)


@pytest.fixture
def proxied(blank_postgres_url: str) -> Iterator[tuple[TcpProxy, str]]:
    with proxy_postgres(blank_postgres_url) as (proxy, url):
        yield proxy, url


def server_id(lease: HeartbeatLease) -> str:
    assert lease.claimant is not None
    return lease.claimant.server_id


def fast_clock() -> float:
    return time.monotonic() * FAST


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def read(self) -> float:
        return self.now


async def wait_for_beats(site: Site, count: int = 2) -> None:
    """Wait for heartbeats that are sent from now on."""
    wanted = len(site.times) + count
    await eventually(lambda: len(site.times) >= wanted)


async def wait_until_lost(lease: HeartbeatLease) -> None:
    await asyncio.wait_for(lease.wait_until_lost(), WAIT_SECONDS)


async def add_claimed_run(store: Store, make: Make, claimant: Claimant) -> Run:
    [agent_id] = await add_threads(store, make, 1)
    return await add_run(store, make.run(make.thread(make.agent(id=agent_id))), claimant)


pytestmark = pytest.mark.slow


async def test_a_lease_is_not_valid_before_it_is_registered(site: Site) -> None:
    lease = site.open()
    assert (lease.is_valid, lease.claimant, lease.is_leader) == (False, None, False)
    # Nobody knows yet.
    assert lease.has_peers
    await wait_until_lost(lease)


async def test_a_registered_server_may_claim_runs(site: Site) -> None:
    lease = await site.register()
    server = await site.find(lease)
    assert lease.claimant == Claimant(server.id, server.worker_id)
    assert (lease.is_valid, lease.is_leader, lease.has_peers, lease.is_exclusive) == (
        True,
        True,
        False,
        False,
    )
    assert server.load == LOAD


async def test_heartbeats_extend_the_lease_in_the_database(site: Site) -> None:
    lease = await site.register()
    first = await site.find(lease)
    await wait_for_beats(site)
    second = await site.find(lease)
    assert first.lease_ends_at is not None
    assert second.lease_ends_at is not None
    assert second.lease_ends_at > first.lease_ends_at
    assert second.heartbeat_at > first.heartbeat_at


async def test_the_own_part_of_a_lease_counts_from_before_the_heartbeat(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it ends before the lease in the database does, however long the answer took."""
    monkeypatch.setattr(heartbeat, "HEARTBEATS_PER_LEASE", 1)
    clock = Clock()
    store = OutageStore(site.store)
    lease = site.open(store=store, clock=clock.read)
    write = store.write

    async def write_slowly(work: Callable[..., object]) -> object:
        result = await write(work)
        clock.now += 100
        return result

    monkeypatch.setattr(store, "write", write_slowly)
    await lease.register()
    clock.now = 1_000 + LEASE_SECONDS * OWN_PART - 1
    assert (lease.is_valid, lease.is_leader) == (True, True)
    clock.now += 1
    assert (lease.is_valid, lease.claimant, lease.is_leader) == (False, None, False)
    await wait_until_lost(lease)


async def test_a_busy_event_loop_does_not_lose_the_lease(site: Site) -> None:
    lease = await site.register(clock=fast_clock)
    registered_id = server_id(lease)
    busy_until = fast_clock() + 1.5 * LEASE_SECONDS
    while fast_clock() < busy_until:
        pass
    assert lease.is_valid
    assert server_id(lease) == registered_id


async def test_a_busy_pool_does_not_lose_the_lease(site: Site) -> None:
    lease = await site.register(clock=fast_clock)
    busy_until = time.monotonic() + 1.5 * LEASE_SECONDS / FAST

    def stay_in_transaction(_: object) -> None:
        threading.Event().wait(max(0.0, busy_until - time.monotonic()))

    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(site.store.read(stay_in_transaction) for _ in range(20)))
    assert lease.is_valid


@pytest.mark.parametrize("fault", ["hang", "cut"])
async def test_a_server_that_cannot_reach_the_database_loses_its_lease_first(
    site: Site, proxied: tuple[TcpProxy, str], fault: str
) -> None:
    """Before the lease ends in the database, where others would take its runs over."""
    proxy, url = proxied
    lease = await site.register(url=url, clock=fast_clock)
    lost_id = server_id(lease)
    await wait_for_beats(site)
    getattr(proxy, fault)()
    await wait_until_lost(lease)
    assert (lease.is_valid, lease.claimant) == (False, None)
    assert await site.is_alive(lost_id)


async def test_a_lost_lease_does_not_come_back_by_itself(
    site: Site, proxied: tuple[TcpProxy, str]
) -> None:
    proxy, url = proxied
    lease = await site.register(url=url, clock=fast_clock)
    proxy.cut()
    await wait_until_lost(lease)
    proxy.resume()
    beats = len(site.times)
    other = await site.register()
    await wait_for_beats(site)
    assert other.is_valid
    assert not lease.is_valid
    assert len(site.times) > beats


async def test_a_heartbeat_that_fails_by_our_own_fault_is_not_the_last_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread must not end: it cannot be started again."""
    lease = site.open()
    renew, failed = lease._connection.renew, threading.Event()

    def fail_once(*values: Any) -> Renewal | None:
        if failed.is_set():
            return renew(*values)
        failed.set()
        raise LookupError("TEST: a bug")

    monkeypatch.setattr(lease._connection, "renew", fail_once)
    await lease.register()
    await wait_for_beats(site, 3)
    assert failed.is_set()
    assert lease.is_valid


async def test_a_lease_that_lapses_before_its_heartbeat_is_answered_stays_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs may have been stopped meanwhile; only a server that registers again goes on with them (simulation seed
    13177)."""
    clock = Clock()
    lease = site.open(clock=clock.read)
    renew = lease._connection.renew
    # The second heartbeat is sent in time, and answered too late.
    times = iter([clock.now + 0.9 * OWN_PART * LEASE_SECONDS, clock.now + OWN_PART * LEASE_SECONDS])

    def renew_slowly(*values: Any) -> Renewal | None:
        renewal = renew(*values)
        clock.now = next(times, clock.now)
        return renewal

    monkeypatch.setattr(lease._connection, "renew", renew_slowly)
    await lease.register()
    lost_id = server_id(lease)
    await wait_until_lost(lease)
    assert (lease.is_valid, lease.claimant) == (False, None)
    await asyncio.wait_for(lease.register(), WAIT_SECONDS)
    assert server_id(lease) != lost_id


@pytest.mark.parametrize("fault", ["hang", "cut"])
async def test_a_server_that_registers_again_has_a_new_id(
    site: Site, proxied: tuple[TcpProxy, str], fault: str
) -> None:
    proxy, url = proxied
    lease = await site.register(url=url, clock=fast_clock)
    lost_id = server_id(lease)
    getattr(proxy, fault)()
    await wait_until_lost(lease)
    proxy.resume()
    await asyncio.wait_for(lease.register(), WAIT_SECONDS)
    assert server_id(lease) != lost_id
    await wait_for_beats(site)
    assert lease.is_valid


async def test_a_server_that_registers_again_gives_up_its_former_runs(
    site: Site, make: Make
) -> None:
    lease = await site.register()
    lost = lease.claimant
    assert lost is not None
    run = await add_claimed_run(site.store, make, lost)
    await asyncio.wait_for(lease.register(), WAIT_SECONDS)
    assert not await site.is_alive(lost.server_id)
    assert (await find_run(site.store, run.id)).owner_id is None


async def test_a_connection_that_never_answers_is_made_again(
    site: Site, proxied: tuple[TcpProxy, str]
) -> None:
    """A firewall may forget a connection without a word."""
    proxy, url = proxied
    lease = await site.register(url=url)
    await wait_for_beats(site)
    proxy.forget()
    # One may have been on its way.
    await wait_for_beats(site, 3)
    assert lease.is_valid


async def test_a_lease_that_others_have_ended_is_lost_at_the_next_heartbeat(site: Site) -> None:
    lease = await site.register()
    ended_id = server_id(lease)
    await site.store.write(lambda tx: tx.servers.expire(ended_id))
    await wait_until_lost(lease)
    assert not lease.is_valid


async def test_a_server_registers_as_soon_as_the_database_answers(site: Site) -> None:
    store = OutageStore(site.store)
    store.is_out = True
    lease = site.open(store=store)
    registering = asyncio.create_task(lease.register())
    await asyncio.wait_for(store.failed.wait(), WAIT_SECONDS)
    assert not lease.is_valid
    store.is_out = False
    await asyncio.wait_for(registering, WAIT_SECONDS)
    assert lease.is_valid


async def test_a_registration_whose_outcome_is_unknown_is_ended_by_the_next_one(site: Site) -> None:
    """Otherwise nobody would lead until its lease has expired: it is the oldest."""
    store = OutageStore(site.store, unknown_at=0)
    lease = await site.register(store=store)
    assert store.failed.is_set()
    assert server_id(lease) == "server-2"
    assert not await site.is_alive("server-1")
    assert lease.is_leader


@pytest.fixture
def ended_process() -> ServerProcess:
    """A process of this machine that is gone."""
    ended = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    process = ServerProcess(
        pid=ended.pid, namespace=identify_process().namespace, started_at_tick=1
    )
    ended.communicate(timeout=WAIT_SECONDS)
    return process


async def register_other(site: Site, process: ServerProcess) -> Claimant:
    other = describe_server("server-other", process=process)
    registered = await site.store.write(lambda tx: tx.servers.register(other, LEASE_SECONDS))
    return Claimant(registered.id, registered.worker_id)


async def test_the_runs_of_a_process_that_is_gone_are_released_at_once(
    site: Site, make: Make, ended_process: ServerProcess
) -> None:
    other = await register_other(site, ended_process)
    run = await add_claimed_run(site.store, make, other)
    lease = await site.register()
    assert not await site.is_alive(other.server_id)
    assert (await find_run(site.store, run.id)).owner_id is None
    assert (lease.is_leader, lease.has_peers) == (True, False)


@pytest.mark.parametrize("where", ["alive", "another machine", "unknown"])
async def test_nothing_is_known_of_other_processes(
    site: Site, make: Make, ended_process: ServerProcess, where: str
) -> None:
    here = identify_process()
    others = {
        "alive": here,
        "another machine": ServerProcess(pid=ended_process.pid, namespace="boot pid:[1]"),
        "unknown": ServerProcess(pid=ended_process.pid),
    }
    other = await register_other(site, others[where])
    run = await add_claimed_run(site.store, make, other)
    lease = await site.register()
    assert await site.is_alive(other.server_id)
    assert (await find_run(site.store, run.id)).owner_id == other.server_id
    assert (lease.is_leader, lease.has_peers) == (False, True)


async def test_the_oldest_server_leads_until_it_ends(site: Site) -> None:
    first, second = await site.register(), await site.register()
    await eventually(lambda: first.has_peers)
    assert (first.is_leader, second.is_leader, second.has_peers) == (True, False, True)
    await first.aclose()
    await eventually(lambda: second.is_leader)
    assert (first.is_leader, second.has_peers) == (False, False)


async def test_a_closed_lease_has_ended(site: Site, make: Make) -> None:
    lease = await site.register()
    closed = lease.claimant
    assert closed is not None
    run = await add_claimed_run(site.store, make, closed)
    await lease.aclose()
    assert (lease.is_valid, lease.claimant) == (False, None)
    assert not await site.is_alive(closed.server_id)
    assert await site.store.write(lambda tx: tx.queue.release_expired()) == 1
    assert (await find_run(site.store, run.id)).owner_id is None
    beats = len(site.times)
    await wait_until_lost(lease)
    assert len(site.times) == beats


async def test_a_lease_can_be_closed_while_the_database_hangs(
    site: Site, proxied: tuple[TcpProxy, str]
) -> None:
    proxy, url = proxied
    lease = await site.register(url=url)
    proxy.hang()
    await asyncio.wait_for(lease.aclose(), WAIT_SECONDS)
    assert not lease.is_valid


async def test_the_time_of_the_database_is_noted(site: Site) -> None:
    before = await site.store.read(lambda tx: tx.servers.now())
    lease = await site.register()
    await wait_for_beats(site)
    assert lease.is_valid
    assert site.times == sorted(site.times)
    assert before <= site.times[0]


async def test_an_exclusive_lease_is_always_valid(store: SqliteStore) -> None:
    lease = ExclusiveLease(store, describe_server("server-a"))
    claimants = [lease.claimant]
    await lease.register()
    claimants.append(lease.claimant)
    assert claimants == [None, Claimant("server-a")]
    assert (lease.is_leader, lease.is_exclusive, lease.has_peers) == (True, True, False)
    lost = asyncio.create_task(lease.wait_until_lost())
    done, _ = await asyncio.wait([lost], timeout=BEAT_SECONDS)
    assert not done
    lost.cancel()
    await lease.aclose()


@pytest.mark.parametrize("lease_seconds", [None, LEASE_SECONDS], ids=["endless", "alive"])
async def test_an_exclusive_lease_releases_what_earlier_servers_have_left(
    store: SqliteStore, make: Make, lease_seconds: float | None
) -> None:
    """They are dead, whatever their leases say: this one has the file."""
    await store.write(lambda tx: tx.servers.register(describe_server("server-old"), lease_seconds))
    run = await add_claimed_run(store, make, Claimant("server-old"))
    await ExclusiveLease(store, describe_server("server-new")).register()
    assert (await find_run(store, run.id)).owner_id is None
    [server] = await store.read(lambda tx: tx.servers.list())
    assert (server.id, server.lease_ends_at) == ("server-new", None)


async def test_the_database_decides_which_lease_a_server_has(
    any_store: SqlStore, blank_store_url: str
) -> None:
    lease = open_lease(
        any_store,
        blank_store_url,
        role=Role.WORKER,
        max_runs=7,
        lease_seconds=LEASE_SECONDS,
        read_load=lambda: LOAD,
        note_time=lambda _: None,
    )
    assert lease.is_exclusive is blank_store_url.startswith("sqlite:")
    await lease.register()
    [server] = await any_store.read(lambda tx: tx.servers.list())
    assert (server.role, server.max_runs, server.process) == ("worker", 7, identify_process())
    assert lease.claimant == Claimant(server.id, server.worker_id)
    await lease.aclose()
