"""What the queue promises while several servers use it at the same moment: PostgreSQL, with a store for each server."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.support.queues import (
    add_run,
    add_threads,
    check_jobs,
    claim_id,
    claim_next,
    end_run,
    find_run,
    register,
    signal,
)
from tests.support.servers import claim_of
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.servers import SqlServers
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claim, Claimant
from holdfast.errors import RunFenced
from holdfast.ports.store import Transaction

pytestmark = pytest.mark.slow

ROUNDS = 60


@dataclass
class Peer:
    """A server with a store of its own."""

    store: SqlStore
    claimant: Claimant


@pytest.fixture
async def peers(blank_postgres_url: str, cipher: Cipher) -> AsyncIterator[tuple[Peer, Peer]]:
    stores = [await open_store(blank_postgres_url, cipher=cipher) for _ in range(2)]
    here, there = [
        Peer(store, await register(store, f"server-{number}"))
        for number, store in enumerate(stores)
    ]
    yield here, there
    await check_jobs(here.store)
    for store in stores:
        await store.close()


@pytest.fixture
async def make_run(peers: tuple[Peer, Peer], make: Make) -> Callable[[int], Run]:
    """New runs in one of three threads."""
    threads = await add_threads(peers[0].store, make, 3)
    return lambda number: make.run(make.thread(make.agent(id=threads[number % 3])))


async def test_servers_that_claim_at_once_never_get_the_same_run_or_two_of_a_thread(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run]
) -> None:
    here, there = peers
    for _ in range(ROUNDS):
        runs = [make_run(number) for number in (0, 0, 1, 1, 2)]
        for run in runs:
            await add_run(here.store, run)
        claims = await asyncio.gather(
            *(claim_next(peer.store, peer.claimant) for peer in (here, there) * 3)
        )
        held = [claim for claim in claims if claim is not None]
        assert len({claim.thread_id for claim in held}) == len(held)
        # A claim may find a run locked by another, but not all of them do.
        assert held
        for run in runs:
            await signal(here.store, run.id, Signal.CLAIM, Signal.COMPLETE)


async def test_a_run_that_is_stored_and_claimed_at_once_has_its_thread_for_itself(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run]
) -> None:
    """While others claim from the same thread."""
    here, there = peers
    for _ in range(ROUNDS):
        waiting, new, other = make_run(0), make_run(0), make_run(0)
        await add_run(here.store, waiting)
        await asyncio.gather(
            add_run(here.store, new, here.claimant),
            add_run(there.store, other, there.claimant),
            claim_next(there.store, there.claimant),
            claim_next(here.store, here.claimant),
        )
        stored = [await find_run(here.store, run.id) for run in (waiting, new, other)]
        assert [run.owner_id is not None for run in stored].count(True) == 1
        assert stored[0].owner_id is not None
        for run in stored:
            await signal(here.store, run.id, Signal.CANCEL)


@pytest.mark.parametrize("act", ["withdraw", "cancel"])
async def test_a_run_is_either_claimed_or_taken_away(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run], act: str
) -> None:
    here, there = peers

    def take_away(tx: Transaction, run: Run) -> bool:
        if act == "withdraw":
            return tx.runs.delete_if_waiting(run.id)
        found = tx.runs.get_for_update(run.organization_id, run.id)
        if found.owner_id is not None:
            return False
        tx.runs.transition(found, Signal.CANCEL)
        return True

    for _ in range(ROUNDS // 3):
        run = make_run(0)
        await add_run(here.store, run)
        claim, is_taken = await asyncio.gather(
            claim_next(there.store, there.claimant),
            here.store.write(partial(take_away, run=run)),
        )
        assert is_taken is (claim is None)
        await check_jobs(here.store)
        if claim is not None:
            await end_run(there.store, run.id)


async def test_a_begun_run_goes_on_before_one_whose_store_was_late(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run]
) -> None:
    """The second run of a thread gets its place before the third, but is committed after it. The third holds the thread."""
    here, there = peers
    first, second, third = (make_run(0) for _ in range(3))
    is_placed, may_commit = threading.Event(), threading.Event()

    def add_late(tx: Transaction) -> None:
        tx.runs.add(second, there.claimant)
        is_placed.set()
        assert may_commit.wait(WAIT_SECONDS)

    await add_run(here.store, first, here.claimant)
    late = asyncio.create_task(there.store.write(add_late))
    assert await asyncio.to_thread(is_placed.wait, WAIT_SECONDS)
    await end_run(here.store, first.id)
    assert (await add_run(here.store, third, here.claimant)).owner_id is not None
    await signal(here.store, third.id, Signal.CLAIM)
    may_commit.set()
    await asyncio.wait_for(late, WAIT_SECONDS)

    assert await here.store.write(lambda tx: tx.queue.release(here.claimant.server_id)) == 1

    assert await claim_id(there.store, there.claimant) == third.id
    await end_run(there.store, third.id)
    assert await claim_id(there.store, there.claimant) == second.id


async def test_a_server_that_registers_during_a_takeover_keeps_its_runs(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = peers
    dead = await register(here.store, "server-dead")
    left, run = make_run(0), make_run(1)
    await add_run(here.store, left, dead)
    await here.store.write(lambda tx: tx.servers.expire(dead.server_id))
    await add_run(here.store, run)
    list_alive_ids = SqlServers.list_alive_ids

    async def join() -> None:
        claimant = await register(there.store, "server-new")
        assert await claim_id(there.store, claimant) == run.id

    loop = asyncio.get_running_loop()

    def list_and_let_join(servers: SqlServers) -> Sequence[str]:
        alive = list_alive_ids(servers)
        asyncio.run_coroutine_threadsafe(join(), loop).result(WAIT_SECONDS)
        return alive

    monkeypatch.setattr(SqlServers, "list_alive_ids", list_and_let_join)
    assert await here.store.write(lambda tx: tx.queue.release_expired()) == 1
    assert (await find_run(here.store, run.id)).owner_id == "server-new"


@dataclass
class Load:
    """Workers of two servers and clients, all at once. ``executing``: the run of each thread that somebody executes now."""

    make_run: Callable[[int], Run]
    chance: random.Random
    executing: dict[str, Claim] = field(default_factory=dict)
    added: list[Run] = field(default_factory=list)

    async def send(self, peer: Peer, count: int) -> None:
        for _ in range(count):
            run = self.make_run(self.chance.randrange(3))
            self.added.append(run)
            claimant = peer.claimant if self.chance.random() < 0.5 else None
            stored = await add_run(peer.store, run, claimant)
            if stored.owner_id is not None:
                await self.execute(peer, claim_of(stored))

    async def work(self, peer: Peer, is_done: asyncio.Event) -> None:
        while not is_done.is_set() or not await peer.store.read(lambda tx: tx.queue.is_empty()):
            claim = await claim_next(peer.store, peer.claimant)
            if claim is not None:
                await self.execute(peer, claim)
            else:
                await asyncio.sleep(0)

    async def execute(self, peer: Peer, claim: Claim) -> None:
        assert claim.thread_id not in self.executing, "two runs of one thread at a time"
        self.executing[claim.thread_id] = claim
        run = await find_run(peer.store, claim.run_id)
        assert (run.owner_id, run.fence) == (peer.claimant.server_id, claim.fence)
        assert claim.is_recovery is (run.status is not RunStatus.QUEUED)
        if run.status is RunStatus.QUEUED:
            run = await peer.store.write(lambda tx: tx.runs.transition(run, Signal.CLAIM))
        del self.executing[claim.thread_id]
        if self.chance.random() < 0.2:
            # Dies, and somebody notices it. Then it tries to write all the same.
            await peer.store.write(lambda tx: tx.queue.release(peer.claimant.server_id))
            with pytest.raises(RunFenced):
                await peer.store.write(lambda tx: tx.runs.save(run))
            return
        await peer.store.write(lambda tx: tx.runs.transition(run, Signal.COMPLETE))


@pytest.mark.parametrize("seed", range(3))
async def test_under_load_each_run_is_executed_alone_in_its_thread_and_ends(
    peers: tuple[Peer, Peer], make_run: Callable[[int], Run], seed: int
) -> None:
    """Each worker is a server of its own, so that one can die alone."""
    load, is_done = Load(make_run, random.Random(seed)), asyncio.Event()
    workers = [
        Peer(peer.store, await register(peer.store, f"worker-{number}-{index}"))
        for index, peer in enumerate(peers)
        for number in range(4)
    ]

    async def send() -> None:
        await asyncio.gather(*(load.send(worker, 12) for worker in workers[::2]))
        is_done.set()

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(send())
        for worker in workers[1::2]:
            group.create_task(load.work(worker, is_done))
    ended = [await find_run(peers[0].store, run.id) for run in load.added]
    assert {run.status for run in ended} == {RunStatus.COMPLETED}
