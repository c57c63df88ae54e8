"""Random programs on the queue of each store: a simple model says what every step must do."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.queues import add_threads, check_jobs, describe_server
from tests.support.values import Make

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claimant
from holdfast.errors import RunFenced
from holdfast.ports.store import Transaction

STEPS = 150
THREADS = 3
SERVERS = 3


@dataclass
class Entry:
    """A live run as the model knows it."""

    run: Run
    owner: str | None = None
    fence: int = 0
    status: RunStatus = RunStatus.QUEUED

    @property
    def is_begun(self) -> bool:
        return self.status is not RunStatus.QUEUED


@dataclass
class ModelQueue:
    """All live runs, in the order in which they were stored."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, run: Run, owner: str | None) -> Entry:
        entry = Entry(run)
        if owner is not None and not self.in_thread(run.thread_id):
            entry.owner, entry.fence = owner, 1
        self.entries.append(entry)
        return entry

    def claim(self, owner: str) -> Entry | None:
        free = [entry for entry in self._in_order() if self._is_next(entry)]
        if not free:
            return None
        free[0].owner, free[0].fence = owner, free[0].fence + 1
        return free[0]

    def release(self, owners: set[str]) -> int:
        released = [entry for entry in self.entries if entry.owner in owners]
        for entry in released:
            entry.owner, entry.fence = None, entry.fence + 1
        return len(released)

    def in_thread(self, thread_id: str) -> Sequence[Entry]:
        return [entry for entry in self._in_order() if entry.run.thread_id == thread_id]

    def _in_order(self) -> Sequence[Entry]:
        return sorted(self.entries, key=lambda entry: not entry.is_begun)

    def _is_next(self, entry: Entry) -> bool:
        thread = self.in_thread(entry.run.thread_id)
        return all(other.owner is None for other in thread) and thread[0] is entry


class Program:
    """Does the same to the store and to the model."""

    def __init__(self, tx: Transaction, make: Make, threads: Sequence[str], chance: random.Random):
        self._tx = tx
        self._make = make
        self._threads = threads
        self._chance = chance
        self._model = ModelQueue()
        self._claimants: list[Claimant] = []
        # Views of runs by earlier claims.
        self._outdated: list[Run] = []
        self._numbers = iter(range(10_000))
        for _ in range(SERVERS):
            self._register()

    def play(self, steps: int) -> None:
        acts = (
            self.add,
            self.add,
            self.add,
            self.claim,
            self.claim,
            self.claim,
            self.begin,
            self.begin,
            self.end,
            self.end,
            self.cancel,
            self.withdraw,
            self.delete,
            self.release,
            self.lose_server,
            self.write_late,
        )
        for _ in range(steps):
            self._chance.choice(acts)()
            self._compare()

    def add(self) -> None:
        thread_id = self._chance.choice(self._threads)
        run = self._make.run(self._make.thread(self._make.agent(id=thread_id)))
        claimant = self._chance.choice([None, *self._claimants])
        stored = self._tx.runs.add(run, claimant)
        entry = self._model.add(run, claimant.server_id if claimant else None)
        assert (stored.owner_id, stored.fence) == (entry.owner, entry.fence)

    def claim(self) -> None:
        claimant = self._chance.choice(self._claimants)
        claim = self._tx.queue.claim_next(claimant)
        entry = self._model.claim(claimant.server_id)
        expected = entry and (entry.run.id, entry.run.thread_id, entry.fence, entry.is_begun)
        assert (
            claim and (claim.run_id, claim.thread_id, claim.fence, claim.is_recovery)
        ) == expected

    def begin(self) -> None:
        if entry := self._pick(lambda entry: entry.owner is not None and not entry.is_begun):
            entry.status = self._tx.runs.transition(self._load(entry), Signal.CLAIM).status

    def end(self) -> None:
        if entry := self._pick(lambda entry: entry.owner is not None and entry.is_begun):
            is_cancelling = entry.status is RunStatus.CANCELLING
            signal = Signal.CONFIRM_CANCEL if is_cancelling else self._chance.choice(ENDINGS)
            self._tx.runs.transition(self._load(entry), signal)
            self._model.entries.remove(entry)

    def cancel(self) -> None:
        """From outside: a run that waits ends, one that runs is marked."""
        if entry := self._pick(lambda entry: entry.status is not RunStatus.CANCELLING):
            entry.status = self._tx.runs.transition(self._load(entry), Signal.CANCEL).status
            if entry.status is RunStatus.CANCELLED:
                self._model.entries.remove(entry)

    def withdraw(self) -> None:
        if entry := self._pick(lambda _: True):
            is_waiting = entry.owner is None and not entry.is_begun
            assert self._tx.runs.delete_if_waiting(entry.run.id) is is_waiting
            if is_waiting:
                self._model.entries.remove(entry)

    def delete(self) -> None:
        if self._chance.random() < 0.3 and (entry := self._pick(lambda _: True)):
            self._tx.runs.delete(DEFAULT_ORGANIZATION_ID, entry.run.id)
            self._model.entries.remove(entry)

    def release(self) -> None:
        claimant = self._chance.choice(self._claimants)
        self._remember({claimant.server_id})
        released = self._tx.queue.release(claimant.server_id)
        assert released == self._model.release({claimant.server_id})

    def lose_server(self) -> None:
        claimant = self._claimants.pop(self._chance.randrange(SERVERS))
        self._register()
        self._remember({claimant.server_id})
        self._tx.servers.expire(claimant.server_id)
        assert self._tx.queue.release_expired() == self._model.release({claimant.server_id})

    def write_late(self) -> None:
        if self._outdated:
            run = self._outdated.pop()
            if any(entry.run.id == run.id for entry in self._model.entries):
                with pytest.raises(RunFenced):
                    self._tx.runs.save(run)

    def _register(self) -> None:
        server = describe_server(f"server-{next(self._numbers)}")
        server = self._tx.servers.register(server, None)
        self._claimants.append(Claimant(server.id, server.worker_id))

    def _remember(self, owners: set[str]) -> None:
        self._outdated += [
            self._load(entry) for entry in self._model.entries if entry.owner in owners
        ]

    def _pick(self, condition: Callable[[Entry], bool]) -> Entry | None:
        found = [entry for entry in self._model.entries if condition(entry)]
        return self._chance.choice(found) if found else None

    def _load(self, entry: Entry) -> Run:
        run = self._tx.runs.find(entry.run.id)
        assert run is not None
        return run

    def _compare(self) -> None:
        """The store has what the model has."""
        entries = self._model.entries
        stored = {
            run.id: (run.owner_id, run.fence, run.status) for run in self._tx.runs.list_live()
        }
        assert stored == {e.run.id: (e.owner, e.fence, e.status) for e in entries}
        waiting = [entry.run.created_at for entry in entries if entry.owner is None]
        depth = self._tx.queue.measure()
        assert (depth.waiting, depth.oldest_at) == (len(waiting), min(waiting, default=None))
        assert self._tx.queue.is_empty() is (not waiting)
        for thread_id in self._threads:
            in_thread = self._model.in_thread(thread_id)
            holders: list[str | None] = [e.run.id for e in in_thread if e.owner is not None]
            assert [self._tx.queue.find_holder(thread_id)] == (holders or [None])


ENDINGS = (Signal.COMPLETE, Signal.FAIL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_the_queue_does_what_the_model_does(
    any_store: SqlStore, make: Make, seed: int
) -> None:
    threads = await add_threads(any_store, make, THREADS)
    await any_store.write(lambda tx: Program(tx, make, threads, random.Random(seed)).play(STEPS))
    await check_jobs(any_store)
