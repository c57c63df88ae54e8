"""The queue of runs, as every store has it: who gets which run and when, and who may write it.

Concurrent claims are in ``test_queue_races``, random programs in ``test_queue_model``.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
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
from tests.support.values import Make, moment

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.events import Event, TextStreamed
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunStatus, Usage
from holdfast.core.servers import Claimant
from holdfast.errors import NotFound, RunFenced, StaleRun
from holdfast.ports.store import QueueDepth, Transaction

ORG = DEFAULT_ORGANIZATION_ID


@dataclass
class Site:
    """Two servers and two threads on one store."""

    store: SqlStore
    make: Make
    here: Claimant
    there: Claimant
    agents: tuple[str, str]

    def run(self, thread: int = 0) -> Run:
        """A new run of the first thread or of the second, younger than those before."""
        agent = self.make.agent(id=self.agents[thread])
        return self.make.run(self.make.thread(agent))

    async def add(self, claimant: Claimant | None = None, *, thread: int = 0) -> Run:
        return await add_run(self.store, self.run(thread), claimant)

    async def begin(self, claimant: Claimant, *, thread: int = 0) -> Run:
        """Add a run that is executed by then."""
        run = await self.add(claimant, thread=thread)
        assert run.owner_id == claimant.server_id
        return await signal(self.store, run.id, Signal.CLAIM)

    async def release(self, claimant: Claimant) -> int:
        return await self.store.write(lambda tx: tx.queue.release(claimant.server_id))

    async def expire(self, claimant: Claimant) -> None:
        await self.store.write(lambda tx: tx.servers.expire(claimant.server_id))

    async def release_expired(self) -> int:
        return await self.store.write(lambda tx: tx.queue.release_expired())


@pytest.fixture
async def site(any_store: SqlStore, make: Make) -> AsyncIterator[Site]:
    here, there = await register(any_store, "server-a"), await register(any_store, "server-b")
    first, second = await add_threads(any_store, make, 2)
    yield Site(any_store, make, here, there, (first, second))
    await check_jobs(any_store)


async def test_a_run_whose_thread_is_free_is_claimed_when_it_is_stored(site: Site) -> None:
    run = site.run()
    stored = await add_run(site.store, run, site.here)
    assert stored == replace(run, owner_id="server-a", fence=1)
    assert await find_run(site.store, run.id) == stored
    assert await claim_next(site.store, site.there) is None


async def test_a_run_that_nobody_claims_waits_for_any_server(site: Site) -> None:
    run = await site.add()
    assert (run.owner_id, run.fence) == (None, 0)
    claim = await claim_next(site.store, site.there)
    assert claim is not None
    assert (claim.run_id, claim.thread_id, claim.fence) == (run.id, run.thread_id, 1)
    assert (claim.last_seq, claim.is_recovery) == (0, False)
    stored = await find_run(site.store, run.id)
    assert stored == replace(run, owner_id="server-b", fence=1)


@pytest.mark.parametrize("is_begun", [False, True], ids=["claimed", "running"])
async def test_a_run_waits_for_the_claimed_one_of_its_thread(site: Site, is_begun: bool) -> None:
    first = await (site.begin(site.here) if is_begun else site.add(site.here))
    second = await site.add(site.here)
    assert second.owner_id is None
    assert await claim_next(site.store, site.there) is None
    await end_run(site.store, first.id)
    assert await claim_id(site.store, site.there) == second.id


async def test_a_run_is_not_claimed_when_it_is_stored_behind_one_that_waits(site: Site) -> None:
    first = await site.add()
    second = await site.add(site.here)
    assert second.owner_id is None
    assert await claim_id(site.store, site.here) == first.id


async def test_the_runs_of_a_thread_are_claimed_in_the_order_in_which_they_were_stored(
    site: Site,
) -> None:
    """Whatever their times say: the clock of a server may be set back."""
    runs = [replace(site.run(), created_at=moment(-number)) for number in range(5)]
    for run in runs:
        await add_run(site.store, run)
    for run in runs:
        assert await claim_id(site.store, site.here) == run.id
        assert await claim_next(site.store, site.there) is None
        await end_run(site.store, run.id)
    assert await claim_next(site.store, site.here) is None


async def test_no_thread_waits_for_another(site: Site) -> None:
    await site.begin(site.here)
    await site.add()
    other = await site.add(thread=1)
    assert await claim_id(site.store, site.there) == other.id
    assert await claim_next(site.store, site.there) is None


async def test_the_oldest_run_of_all_threads_comes_first(site: Site) -> None:
    runs = [await site.add(thread=number) for number in (1, 0)]
    assert [await claim_id(site.store, site.here) for _ in runs] == [run.id for run in runs]


async def test_a_paused_run_leaves_its_thread_to_others(site: Site) -> None:
    run = await site.begin(site.here)
    following = await site.add()
    await signal(site.store, run.id, Signal.PAUSE)
    assert await claim_id(site.store, site.there) == following.id


async def test_a_run_that_was_released_comes_before_those_that_wait(site: Site) -> None:
    run = await site.begin(site.here)
    following = await site.add()
    assert await site.release(site.here) == 1
    claim = await claim_next(site.store, site.there)
    assert claim is not None
    assert (claim.run_id, claim.fence, claim.is_recovery) == (run.id, run.fence + 2, True)
    assert await claim_next(site.store, site.here) is None
    await end_run(site.store, run.id)
    assert await claim_id(site.store, site.here) == following.id


async def test_a_new_run_is_not_claimed_before_one_that_was_released(site: Site) -> None:
    run = await site.begin(site.here)
    await site.release(site.here)
    assert (await site.add(site.there)).owner_id is None
    assert await claim_id(site.store, site.there) == run.id


async def test_a_claim_tells_the_last_number_that_a_reader_may_have(site: Site) -> None:
    run = await site.begin(site.here)
    await site.store.write(lambda tx: tx.runs.reserve_seq(run, 70))
    await site.release(site.here)
    claim = await claim_next(site.store, site.there)
    assert claim is not None
    assert claim.last_seq == 70


async def test_release_gives_back_what_one_server_has(site: Site) -> None:
    begun, claimed = await site.begin(site.here), await site.add(site.there, thread=1)
    assert await site.release(site.here) == 1
    assert await find_run(site.store, begun.id) == replace(
        begun, owner_id=None, fence=begun.fence + 1
    )
    assert await find_run(site.store, claimed.id) == claimed
    assert await site.release(site.here) == 0


async def test_release_leaves_the_runs_that_are_kept(site: Site) -> None:
    kept, claimed = await site.begin(site.here), await site.add(site.here, thread=1)
    owner_id = site.here.server_id
    assert await site.store.write(lambda tx: tx.queue.release(owner_id, keep=[kept.id])) == 1
    assert await find_run(site.store, kept.id) == kept
    assert (await find_run(site.store, claimed.id)).owner_id is None


async def test_what_has_ended_is_not_released(site: Site) -> None:
    run = await site.begin(site.here)
    ended = await end_run(site.store, run.id)
    assert await site.release(site.here) == 0
    assert await find_run(site.store, run.id) == ended


async def test_release_expired_takes_the_runs_of_dead_servers(site: Site) -> None:
    dead, alive = await site.begin(site.here), await site.begin(site.there, thread=1)
    assert await site.release_expired() == 0
    await site.expire(site.here)
    assert await site.release_expired() == 1
    assert await find_run(site.store, dead.id) == replace(dead, owner_id=None, fence=dead.fence + 1)
    assert await find_run(site.store, alive.id) == alive
    assert await site.release_expired() == 0


async def test_release_expired_takes_the_runs_of_unknown_servers(site: Site) -> None:
    run = await site.begin(site.here)
    await site.expire(site.here)
    await site.store.write(lambda tx: tx.servers.delete_dead(moment(10**9)))
    assert await site.store.read(lambda tx: tx.servers.find("server-a")) is None
    assert await site.release_expired() == 1
    assert (await find_run(site.store, run.id)).owner_id is None


async def test_a_server_whose_lease_never_ends_keeps_its_runs(
    any_store: SqlStore, make: Make
) -> None:
    claimant = await register(any_store, "server-a", None)
    [agent_id] = await add_threads(any_store, make, 1)
    run = make.run(make.thread(make.agent(id=agent_id)))
    await add_run(any_store, run, claimant)
    assert await any_store.write(lambda tx: tx.queue.release_expired()) == 0


Write = Callable[[Transaction, Run], object]

WRITES: dict[str, Write] = {
    "save": lambda tx, run: tx.runs.save(replace(run, usage=Usage(9))),
    "end": lambda tx, run: tx.runs.transition(run, Signal.COMPLETE),
    "cancel": lambda tx, run: tx.runs.transition(run, Signal.CANCEL),
    "reserve_seq": lambda tx, run: tx.runs.reserve_seq(run, 99),
    "lock": lambda tx, run: tx.runs.lock(run),
}
any_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@any_write
@pytest.mark.parametrize("is_claimed_again", [False, True], ids=["released", "claimed again"])
async def test_the_writes_of_an_earlier_claim_are_refused(
    site: Site, write: Write, is_claimed_again: bool
) -> None:
    """And what else their transactions have written is undone."""
    run = await site.begin(site.here)
    await site.release(site.here)
    if is_claimed_again:
        assert await claim_id(site.store, site.there) == run.id
    stored = await find_run(site.store, run.id)
    thread = site.make.thread(site.make.agent(id=run.agent_id))
    message, step = site.make.message(thread), site.make.step(run)

    def write_all(tx: Transaction) -> None:
        tx.messages.append([message])
        tx.steps.add(step)
        tx.events.append([Event(run.id, 1, TextStreamed("m", "s", 0, "text"))])
        write(tx, run)

    with pytest.raises(RunFenced):
        await site.store.write(write_all)

    assert await find_run(site.store, run.id) == stored
    assert await site.store.read(lambda tx: tx.events.list_after(run.id, 0, 9)) == []
    assert await site.store.read(lambda tx: tx.steps.list_pending(run.id)) == []
    assert await site.store.read(lambda tx: tx.messages.context(run.thread_id)) == []


@any_write
async def test_the_writes_of_the_last_claim_are_accepted(site: Site, write: Write) -> None:
    run = await site.begin(site.here)
    await site.release(site.here)
    await claim_next(site.store, site.there)
    run = await find_run(site.store, run.id)
    await site.store.write(lambda tx: write(tx, run))


async def test_a_run_that_was_claimed_before_it_began_cannot_be_begun_by_an_earlier_claim(
    site: Site,
) -> None:
    run = await site.add(site.here)
    await site.release(site.here)
    assert await claim_id(site.store, site.there) == run.id
    with pytest.raises(RunFenced):
        await site.store.write(lambda tx: tx.runs.transition(run, Signal.CLAIM))
    assert (await find_run(site.store, run.id)).status is RunStatus.QUEUED


async def test_another_status_is_not_another_claim(site: Site) -> None:
    run = await site.begin(site.here)
    await signal(site.store, run.id, Signal.CANCEL)
    with pytest.raises(StaleRun) as refused:
        await site.store.write(lambda tx: tx.runs.save(run))
    assert not isinstance(refused.value, RunFenced)


@pytest.mark.parametrize("write", [WRITES["reserve_seq"], WRITES["lock"]])
async def test_a_run_that_is_gone_is_not_found(site: Site, write: Write) -> None:
    run = await site.begin(site.here)
    await site.store.write(lambda tx: tx.runs.delete(ORG, run.id))
    with pytest.raises(NotFound):
        await site.store.write(lambda tx: write(tx, run))


async def test_saving_a_run_changes_neither_its_owner_nor_its_fence(site: Site) -> None:
    run = await site.begin(site.here)
    changed = replace(run, owner_id="server-b", usage=Usage(3))
    await site.store.write(lambda tx: tx.runs.save(changed))
    assert await find_run(site.store, run.id) == replace(run, usage=Usage(3))


ENDINGS: dict[str, tuple[Signal, ...]] = {
    "cancelled before a claim": (Signal.CANCEL,),
    "failed before a claim": (Signal.FAIL,),
    "completed": (Signal.CLAIM, Signal.COMPLETE),
    "failed": (Signal.CLAIM, Signal.FAIL),
    "paused": (Signal.CLAIM, Signal.PAUSE),
    "cancelled": (Signal.CLAIM, Signal.CANCEL, Signal.CONFIRM_CANCEL),
}


@pytest.mark.parametrize("is_claimed", [False, True], ids=["waiting", "claimed"])
@pytest.mark.parametrize("signals", ENDINGS.values(), ids=ENDINGS)
async def test_a_run_that_has_ended_has_left_the_queue(
    site: Site, signals: tuple[Signal, ...], is_claimed: bool
) -> None:
    run = await site.add(site.here if is_claimed else None)
    await check_jobs(site.store)
    await signal(site.store, run.id, *signals)
    assert await claim_next(site.store, site.there) is None
    assert await site.store.read(lambda tx: tx.queue.is_empty())
    await check_jobs(site.store)
    if "paused" in str(signals):
        # An answer or a cancel later on finds nothing to remove.
        await signal(site.store, run.id, Signal.ANSWER)


async def test_a_run_that_waits_is_withdrawn_with_its_place(site: Site) -> None:
    await site.begin(site.here)
    second, third = await site.add(), await site.add()
    assert await site.store.write(lambda tx: tx.runs.delete_if_waiting(second.id))
    assert not await site.store.write(lambda tx: tx.runs.delete_if_waiting(second.id))
    await check_jobs(site.store)
    await site.release(site.here)
    await claim_next(site.store, site.here)
    assert (await site.store.read(lambda tx: tx.queue.measure())).waiting == 1
    assert await find_run(site.store, third.id) == third


@pytest.mark.parametrize("is_begun", [False, True], ids=["claimed", "running"])
async def test_a_run_that_somebody_has_is_not_withdrawn(site: Site, is_begun: bool) -> None:
    run = await (site.begin(site.here) if is_begun else site.add(site.here))
    assert not await site.store.write(lambda tx: tx.runs.delete_if_waiting(run.id))
    await site.release(site.here)
    is_deleted = await site.store.write(lambda tx: tx.runs.delete_if_waiting(run.id))
    assert is_deleted is not is_begun


async def test_a_deleted_run_leaves_its_thread_to_the_next(site: Site) -> None:
    run, following = await site.begin(site.here), await site.add()
    await site.store.write(lambda tx: tx.runs.delete(ORG, run.id))
    await check_jobs(site.store)
    assert await claim_id(site.store, site.there) == following.id


async def test_a_deleted_agent_leaves_nothing_in_the_queue(site: Site) -> None:
    for _ in range(2):
        await site.add(site.here)
    kept = await site.add(thread=1)
    await site.store.write(lambda tx: tx.agents.delete(ORG, site.agents[0]))
    await check_jobs(site.store)
    assert [await claim_id(site.store, site.here) for _ in range(2)] == [kept.id, None]


async def test_a_deleted_conversation_leaves_nothing_in_the_queue(site: Site) -> None:
    agent = site.make.agent(id=site.agents[0])
    thread = site.make.thread(agent, id="conv-1")
    await site.store.write(lambda tx: tx.threads.add(thread))
    await add_run(site.store, site.make.run(thread), site.here)
    await add_run(site.store, site.make.run(thread))
    kept = await site.add()
    await site.store.write(lambda tx: tx.threads.delete(ORG, thread.id, moment(0)))
    await check_jobs(site.store)
    assert [await claim_id(site.store, site.here) for _ in range(2)] == [kept.id, None]


async def test_what_a_transaction_did_to_the_queue_is_undone_with_it(site: Site) -> None:
    waiting = await site.add(thread=1)

    def work(tx: Transaction) -> None:
        tx.runs.add(site.run(), site.here)
        assert tx.queue.claim_next(site.there) is not None
        raise StaleRun

    with pytest.raises(StaleRun):
        await site.store.write(work)
    await check_jobs(site.store)
    assert await find_run(site.store, waiting.id) == waiting
    assert [await claim_id(site.store, site.here) for _ in range(2)] == [waiting.id, None]


async def test_the_queue_says_how_many_wait_and_since_when(site: Site) -> None:
    async def look() -> tuple[bool, QueueDepth]:
        return await site.store.read(lambda tx: (tx.queue.is_empty(), tx.queue.measure()))

    assert await look() == (True, QueueDepth())
    await site.begin(site.here)
    assert await look() == (True, QueueDepth())
    second, third = await site.add(), await site.add(thread=1)
    assert await look() == (False, QueueDepth(2, second.created_at))
    await site.store.write(lambda tx: tx.runs.delete_if_waiting(second.id))
    assert await look() == (False, QueueDepth(1, third.created_at))
    await claim_next(site.store, site.there)
    assert await look() == (True, QueueDepth())
    await site.release(site.there)
    assert await look() == (False, QueueDepth(1, third.created_at))


async def test_the_holder_of_a_thread_is_the_run_that_somebody_has(site: Site) -> None:
    async def find_holder() -> str | None:
        return await site.store.read(lambda tx: tx.queue.find_holder(site.agents[0]))

    assert await find_holder() is None
    first, second = await site.add(), await site.add()
    assert await find_holder() is None
    await claim_next(site.store, site.here)
    assert await find_holder() == first.id
    await end_run(site.store, first.id)
    assert await find_holder() is None
    await claim_next(site.store, site.there)
    assert await find_holder() == second.id


async def test_the_claims_of_a_server_are_its_runs_that_have_not_ended(site: Site) -> None:
    ended = await site.begin(site.here)
    await end_run(site.store, ended.id)
    run = await site.begin(site.here)
    await site.add()
    await site.add(site.there, thread=1)
    [claim] = await site.store.read(lambda tx: tx.queue.list_claims("server-a"))
    assert (claim.run_id, claim.thread_id, claim.fence) == (run.id, run.thread_id, 1)
    await site.release(site.here)
    assert await site.store.read(lambda tx: tx.queue.list_claims("server-a")) == []
