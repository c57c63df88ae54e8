"""The dispatch on the queue of a store: what one server takes, and what it finds of other servers.

Who gets which run is decided by the queue: ``test_queue``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pytest
from sqlalchemy.pool import QueuePool
from tests.doubles.lease import GivenLease
from tests.doubles.store import OutageStore
from tests.support.bells import connect_postgres_bell
from tests.support.queues import add_run, add_threads, claim_id, end_run, find_run, register
from tests.support.servers import claim_of
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.dispatch import queue
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.runs import Run
from holdfast.core.servers import Claim, Claimant
from holdfast.ports.bell import RUNS, Bell, run_topic
from holdfast.ports.store import Store, Transaction
from holdfast.ports.telemetry import NO_TELEMETRY

T = TypeVar("T")

# Longer than any test: what is found was not found by polling.
NEVER = 10.0 * WAIT_SECONDS
SOON = 0.01
ROOM = 3


class DeafBell(LocalBell):
    """Hears nothing, and says so."""

    is_connected = False

    def ring(self, topic: str, *, here_only: bool = False) -> None: ...


class LyingBell(DeafBell):
    """Hears nothing and does not know it."""

    is_connected = True


class LateStore:
    """Keeps the result of a write to itself for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = store.read
        self.is_late = False
        self.has_result = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        result = await self._store.write(work)
        if self.is_late:
            self.has_result.set()
            await self.may_answer.wait()
        return result

    async def close(self) -> None: ...


@dataclass
class Server:
    """A server with its dispatch, which executes runs."""

    store: Store
    bell: Bell
    lease: GivenLease
    dispatch: QueueDispatch
    new_run: Callable[[int], Run]

    @property
    def claimant(self) -> Claimant:
        assert self.lease.claimant is not None
        return self.lease.claimant

    async def send(self, thread: int = 0) -> Run:
        """Store a run and submit it, as a request does."""
        run = await add_run(self.store, self.new_run(thread), self.dispatch.claimant())
        self.dispatch.submit(run)
        return run

    async def take(self) -> Claim:
        return await asyncio.wait_for(self.dispatch.take(), WAIT_SECONDS)

    async def end(self, claim: Claim) -> None:
        """End the run, as a worker does."""
        await end_run(self.store, claim.run_id)
        self.dispatch.release(claim)


@pytest.fixture(autouse=True)
def polling(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is found by polling, unless a test says so."""
    for name in ("POLL_SECONDS", "POLL_SECONDS_WITHOUT_BELL", "TURN_POLL_SECONDS"):
        monkeypatch.setattr(queue, name, NEVER)
    monkeypatch.setattr(queue, "STORE_RETRY_SECONDS", SOON)
    return monkeypatch


@pytest.fixture
async def new_run(any_store: SqlStore, make: Make) -> AsyncIterator[Callable[[int], Run]]:
    """New runs in one of four threads."""
    threads = await add_threads(any_store, make, 4)
    yield lambda number: make.run(make.thread(make.agent(id=threads[number])))
    # The store finishes what a cancelled task has asked for.
    pools = [any_store._writer.pool, any_store._reader.pool]
    await eventually(
        lambda: all(pool.checkedout() == 0 for pool in pools if isinstance(pool, QueuePool))
    )


class StartServer(Protocol):
    async def __call__(
        self,
        store: Store,
        bell: Bell,
        new_run: Callable[[int], Run],
        name: str = "server-a",
        max_runs: int = ROOM,
    ) -> Server: ...


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts servers, and stops them after the test."""
    started: list[Server] = []

    async def start(
        store: Store,
        bell: Bell,
        new_run: Callable[[int], Run],
        name: str = "server-a",
        max_runs: int = ROOM,
    ) -> Server:
        lease = GivenLease(await register(store, name))
        dispatch = QueueDispatch(store, bell, lease, NO_TELEMETRY, max_runs=max_runs)
        dispatch.start()
        started.append(Server(store, bell, lease, dispatch, new_run))
        return started[-1]

    yield start
    for server in started:
        server.dispatch.stop()


@pytest.fixture
async def server(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> Server:
    return await start_server(any_store, LocalBell(), new_run)


async def start_waiting(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that waits already, and has looked into the store if it wants to."""
    task = asyncio.create_task(coroutine)
    done, _ = await asyncio.wait([task], timeout=0.1)
    assert not done
    return task


async def wait(task: asyncio.Task[T]) -> T:
    return await asyncio.wait_for(task, WAIT_SECONDS)


def restart(dispatch: QueueDispatch) -> None:
    """So that it waits as long as is set now."""
    dispatch.stop()
    dispatch.start()


async def stop_task(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=WAIT_SECONDS)


async def test_what_this_server_has_claimed_is_taken_once(server: Server) -> None:
    run = await server.send()
    assert (run.owner_id, server.dispatch.submit(run)) == ("server-a", True)
    assert await server.take() == claim_of(run)
    await stop_task(await start_waiting(server.dispatch.take()))


async def test_take_may_be_called_before_a_run_is_stored(server: Server) -> None:
    task = await start_waiting(server.dispatch.take())
    run = await server.send()
    assert (await wait(task)).run_id == run.id


async def test_runs_of_one_thread_are_taken_in_order_one_at_a_time(server: Server) -> None:
    runs = [await server.send() for _ in range(3)]
    for run in runs[:-1]:
        claim = await server.take()
        assert claim.run_id == run.id
        task = await start_waiting(server.dispatch.take())
        await stop_task(task)
        await server.end(claim)
    assert (await server.take()).run_id == runs[-1].id


async def test_a_waiting_take_gets_the_next_run_when_one_has_ended(server: Server) -> None:
    first, second = await server.send(), await server.send()
    claim = await server.take()
    assert claim.run_id == first.id
    task = await start_waiting(server.dispatch.take())
    await server.end(claim)
    assert (await wait(task)).run_id == second.id


async def test_no_thread_waits_for_another(server: Server) -> None:
    first, _, other = [await server.send(thread) for thread in (0, 0, 1)]
    assert [(await server.take()).run_id for _ in range(2)] == [first.id, other.id]


async def test_no_more_runs_are_taken_than_there_is_room_for(server: Server) -> None:
    runs = [await server.send(thread) for thread in range(ROOM + 1)]
    assert [run.owner_id is None for run in runs] == [False] * ROOM + [True]
    assert server.dispatch.claimant() is None
    claims = [await server.take() for _ in range(ROOM)]
    task = await start_waiting(server.dispatch.take())
    await server.end(claims[1])
    assert (await wait(task)).run_id == runs[ROOM].id


async def test_what_waits_for_room_comes_before_what_is_new(server: Server) -> None:
    for thread in range(ROOM):
        await server.send(thread)
    claims = [await server.take() for _ in range(ROOM)]
    waiting = await server.send(ROOM)
    task = await start_waiting(server.dispatch.take())
    await end_run(server.store, claims[0].run_id)
    server.dispatch.release(claims[0])
    new = await server.send(0)
    assert new.owner_id is None
    assert (await wait(task)).run_id == waiting.id


async def test_a_nested_run_needs_no_room(server: Server) -> None:
    for thread in range(ROOM):
        await server.send(thread)
    claimant = server.dispatch.claimant(is_nested=True)
    assert claimant == server.claimant
    nested = await add_run(server.store, server.new_run(ROOM), claimant)
    assert server.dispatch.submit(nested)
    taken = [(await server.take()).run_id for _ in range(ROOM + 1)]
    assert nested.id in taken


async def test_a_server_without_room_takes_nothing(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> None:
    server = await start_server(any_store, LocalBell(), new_run, max_runs=0)
    run = await server.send()
    assert (run.owner_id, server.dispatch.claimant(is_nested=True)) == (None, None)
    assert not server.dispatch.submit(run)
    await stop_task(await start_waiting(server.dispatch.take()))
    assert await find_run(any_store, run.id) == run


async def test_a_server_without_a_lease_takes_nothing(server: Server) -> None:
    claimant, server.lease.claimant = server.lease.claimant, None
    run = await server.send()
    assert run.owner_id is None
    task = await start_waiting(server.dispatch.take())
    server.lease.claimant = claimant
    server.bell.ring(RUNS, here_only=True)
    assert (await wait(task)).run_id == run.id


async def test_a_run_that_another_server_has_claimed_is_left_to_it(server: Server) -> None:
    other = await register(server.store, "server-b")
    run = await add_run(server.store, server.new_run(0), other)
    assert not server.dispatch.submit(run)
    await stop_task(await start_waiting(server.dispatch.take()))


async def test_only_the_last_claim_of_a_run_frees_its_room(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> None:
    server = await start_server(any_store, LocalBell(), new_run, max_runs=1)
    await server.send()
    old = await server.take()
    await any_store.write(lambda tx: tx.queue.release("server-a"))
    server.bell.ring(RUNS, here_only=True)
    server.dispatch.release(old)
    new = await server.take()
    assert (new.run_id, new.fence) == (old.run_id, old.fence + 2)
    server.dispatch.release(old)
    assert server.dispatch.claimant() is None
    server.dispatch.release(new)
    assert server.dispatch.claimant() == server.claimant


async def test_a_cancelled_take_loses_nothing(server: Server) -> None:
    task = await start_waiting(server.dispatch.take())
    run = await server.send()
    await stop_task(task)
    assert (await server.take()).run_id == run.id


async def test_a_ring_while_nobody_waits_is_not_lost(server: Server) -> None:
    """Whatever else has woken the dispatch meanwhile."""
    await stop_task(await start_waiting(server.dispatch.take()))
    found = await add_run(server.store, server.new_run(1))
    server.bell.ring(RUNS)
    own = await server.send()
    assert {(await server.take()).run_id for _ in range(2)} == {found.id, own.id}


async def test_a_run_that_is_submitted_while_the_queue_is_looked_through_is_found(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> None:
    """The queue was empty a moment before."""
    store = LateStore(any_store)
    server = await start_server(store, LocalBell(), new_run)
    store.is_late = True
    task = asyncio.create_task(server.dispatch.take())
    await asyncio.wait_for(store.has_result.wait(), WAIT_SECONDS)
    run = await add_run(any_store, server.new_run(0))
    server.dispatch.submit(run)
    store.is_late = False
    store.may_answer.set()
    assert (await wait(task)).run_id == run.id


async def test_a_thread_that_becomes_free_while_the_queue_is_looked_through_is_noticed(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> None:
    store = LateStore(any_store)
    server = await start_server(store, LocalBell(), new_run)
    await server.send()
    claim = await server.take()
    waiting = await server.send()
    store.is_late = True
    task = asyncio.create_task(server.dispatch.take())
    await asyncio.wait_for(store.has_result.wait(), WAIT_SECONDS)
    await end_run(any_store, claim.run_id)
    server.dispatch.release(claim)
    store.is_late = False
    store.may_answer.set()
    assert (await wait(task)).run_id == waiting.id


async def test_an_unreachable_store_is_tried_again(
    any_store: SqlStore, new_run: Callable[[int], Run], start_server: StartServer
) -> None:
    store = OutageStore(any_store)
    server = await start_server(store, LocalBell(), new_run)
    run = await add_run(any_store, server.new_run(0))
    store.is_out = True
    task = asyncio.create_task(server.dispatch.take())
    await asyncio.wait_for(store.failed.wait(), WAIT_SECONDS)
    store.is_out = False
    server.bell.ring(RUNS, here_only=True)
    assert (await wait(task)).run_id == run.id


@pytest.mark.parametrize(
    ("bell", "setting"),
    [(DeafBell, "POLL_SECONDS_WITHOUT_BELL"), (LyingBell, "POLL_SECONDS")],
    ids=["deaf", "lying"],
)
async def test_what_another_server_stored_is_found_by_polling_alone(
    any_store: SqlStore,
    new_run: Callable[[int], Run],
    start_server: StartServer,
    polling: pytest.MonkeyPatch,
    bell: type[LocalBell],
    setting: str,
) -> None:
    server = await start_server(any_store, bell(), new_run)
    task = await start_waiting(server.dispatch.take())
    await stop_task(task)
    polling.setattr(queue, setting, SOON)
    restart(server.dispatch)
    task = await start_waiting(server.dispatch.take())
    run = await add_run(any_store, server.new_run(0))
    assert (await wait(task)).run_id == run.id


async def test_a_run_whose_commit_had_an_unknown_outcome_is_found(
    server: Server, polling: pytest.MonkeyPatch
) -> None:
    """It is claimed, but nobody has submitted it."""
    polling.setattr(queue, "POLL_SECONDS", SOON)
    restart(server.dispatch)
    task = await start_waiting(server.dispatch.take())
    run = await add_run(server.store, server.new_run(0), server.dispatch.claimant())
    assert (await wait(task)) == claim_of(run)
    await stop_task(await start_waiting(server.dispatch.take()))


async def test_a_server_that_is_always_woken_finds_forgotten_runs_too(
    server: Server, polling: pytest.MonkeyPatch
) -> None:
    polling.setattr(queue, "POLL_SECONDS", 5 * SOON)

    async def ring() -> None:
        while True:
            server.bell.ring(RUNS)
            await asyncio.sleep(0)

    ringing = asyncio.create_task(ring())
    try:
        task = await start_waiting(server.dispatch.take())
        run = await add_run(server.store, server.new_run(0), server.dispatch.claimant())
        assert (await wait(task)).run_id == run.id
    finally:
        await stop_task(ringing)


async def test_a_stopped_dispatch_takes_nothing(server: Server) -> None:
    await server.send()
    server.dispatch.stop()
    assert server.dispatch.claimant() is None
    run = await server.send(1)
    assert run.owner_id is None
    await stop_task(await start_waiting(server.dispatch.take()))


async def test_a_dispatch_that_is_started_again_takes_what_waits(server: Server) -> None:
    task = await start_waiting(server.dispatch.take())
    await stop_task(task)
    server.dispatch.stop()
    run = await server.send()
    server.dispatch.start()
    assert (await server.take()).run_id == run.id


async def test_a_run_that_does_not_wait_has_its_turn(server: Server) -> None:
    run = await server.send()
    await asyncio.wait_for(server.dispatch.wait_for_turn(run), WAIT_SECONDS)
    claimed = await find_run(server.store, run.id)
    await asyncio.wait_for(server.dispatch.wait_for_turn(claimed), WAIT_SECONDS)


async def test_a_run_waits_for_its_turn_until_it_is_claimed(server: Server) -> None:
    await server.send()
    waiting = await server.send()
    turn = await start_waiting(server.dispatch.wait_for_turn(waiting))
    await server.end(await server.take())
    assert not turn.done()
    assert (await server.take()).run_id == waiting.id
    await wait(turn)


async def test_a_run_that_was_withdrawn_waits_no_more(server: Server) -> None:
    await server.send()
    waiting = await server.send()
    turn = await start_waiting(server.dispatch.wait_for_turn(waiting))
    await server.store.write(lambda tx: tx.runs.delete_if_waiting(waiting.id))
    server.bell.ring(run_topic(waiting.id))
    await wait(turn)


async def test_all_turns_end_when_the_server_stops(server: Server) -> None:
    await server.send()
    waiting = [await server.send() for _ in range(2)]
    turns = [await start_waiting(server.dispatch.wait_for_turn(run)) for run in waiting]
    server.dispatch.stop()
    for turn in turns:
        await wait(turn)
    await asyncio.wait_for(server.dispatch.wait_for_turn(waiting[0]), WAIT_SECONDS)


@pytest.mark.parametrize("bell", [DeafBell, LyingBell])
async def test_a_turn_is_noticed_by_polling_alone(
    any_store: SqlStore,
    new_run: Callable[[int], Run],
    start_server: StartServer,
    polling: pytest.MonkeyPatch,
    bell: type[LocalBell],
) -> None:
    for name in ("POLL_SECONDS_WITHOUT_BELL", "TURN_POLL_SECONDS"):
        polling.setattr(queue, name, SOON)
    server = await start_server(any_store, bell(), new_run)
    first, waiting = await server.send(), await server.send()
    turn = await start_waiting(server.dispatch.wait_for_turn(waiting))
    await end_run(any_store, first.id)
    assert await claim_id(any_store, await register(any_store, "server-b")) == waiting.id
    await wait(turn)


@pytest.fixture
async def servers(
    blank_postgres_url: str, cipher: Cipher, make: Make, start_server: StartServer
) -> AsyncIterator[tuple[Server, Server]]:
    """Two servers that share nothing but the database."""
    async with AsyncExitStack() as stack:

        async def open_own_store() -> SqlStore:
            store = await open_store(blank_postgres_url, cipher=cipher)
            stack.push_async_callback(store.close)
            return store

        stores = [await open_own_store() for _ in range(2)]
        threads = await add_threads(stores[0], make, 4)

        def new_run(number: int) -> Run:
            return make.run(make.thread(make.agent(id=threads[number])))

        here, there = [
            await start_server(
                store,
                await stack.enter_async_context(connect_postgres_bell(blank_postgres_url)),
                new_run,
                name,
            )
            for store, name in zip(stores, ("server-a", "server-b"), strict=True)
        ]
        yield here, there


@pytest.mark.slow
class TestTwoServers:
    """On one PostgreSQL. They hear of each other by notifications alone."""

    async def test_a_run_that_finds_no_room_is_taken_by_the_other(
        self, servers: tuple[Server, Server]
    ) -> None:
        here, there = servers
        task = await start_waiting(there.dispatch.take())
        for thread in range(ROOM):
            await here.send(thread)
        run = await here.send(ROOM)
        assert (await wait(task)).run_id == run.id

    async def test_a_run_is_taken_by_one_of_them(self, servers: tuple[Server, Server]) -> None:
        tasks = [await start_waiting(server.dispatch.take()) for server in servers]
        run = await add_run(servers[0].store, servers[0].new_run(0))
        done, pending = await asyncio.wait(
            tasks, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        assert [task.result().run_id for task in done] == [run.id]
        for task in pending:
            await stop_task(await start_waiting(_join(task)))
            await stop_task(task)

    async def test_who_executes_a_thread_takes_its_next_run_although_the_other_has_stored_it(
        self, servers: tuple[Server, Server]
    ) -> None:
        here, there = servers
        await here.send()
        claim = await here.take()
        task = await start_waiting(here.dispatch.take())
        waiting = await there.send()
        assert waiting.owner_id is None
        turn = await start_waiting(there.dispatch.wait_for_turn(waiting))
        await here.end(claim)
        assert (await wait(task)).run_id == waiting.id
        await wait(turn)

    async def test_what_one_gives_back_is_taken_by_the_other(
        self, servers: tuple[Server, Server]
    ) -> None:
        here, there = servers
        await here.send()
        claim = await here.take()
        task = await start_waiting(there.dispatch.take())
        here.dispatch.stop()
        await here.store.write(lambda tx: tx.queue.release(here.claimant.server_id))
        here.bell.ring(RUNS)
        taken = await wait(task)
        assert (taken.run_id, taken.fence) == (claim.run_id, claim.fence + 2)


async def _join(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
