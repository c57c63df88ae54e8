"""The dispatch on the queue of the store. It looks into the queue when something may have changed there, and now and then
anyway: a wake-up from another server may be lost."""

import asyncio
import logging
from collections import Counter, deque
from contextlib import suppress
from typing import Final

from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claim, Claimant
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError
from holdfast.ports.bell import RUNS, Bell, run_topic
from holdfast.ports.lease import Lease
from holdfast.ports.store import Store, Transaction
from holdfast.ports.telemetry import Telemetry

log = logging.getLogger(__name__)

# How often the queue is looked through if nothing rings: a run that was stored by another server a moment before its
# wake-up was lost waits so long. Without wake-ups from others it is the usual way to find a run.
POLL_SECONDS: Final = 5.0
POLL_SECONDS_WITHOUT_BELL: Final = 0.25
# How often the store is asked for the turn of a run that waits, in case its wake-up was lost.
TURN_POLL_SECONDS: Final = 1.0
# How long to wait before an unreachable store is tried again.
STORE_RETRY_SECONDS: Final = 1.0


class QueueDispatch:
    """``max_runs``: how many runs this server executes at a time; 0 if it executes none."""

    def __init__(
        self, store: Store, bell: Bell, lease: Lease, telemetry: Telemetry, *, max_runs: int
    ) -> None:
        self._store = store
        self._bell = bell
        self._lease = lease
        self._telemetry = telemetry
        self._max_runs = max_runs
        # Claims for the worker to take, and those that it has taken, by run.
        self._claimed: deque[Claim] = deque()
        self._executed: dict[str, Claim] = {}
        # Whether runs may wait in the queue. True until the queue is seen to be empty.
        self._may_have_runs = True
        self._has_worker = False
        self._stopped = False
        # The runs whose turn requests of this server wait for.
        self._awaited: Counter[str] = Counter()

    def start(self) -> None:
        self._has_worker, self._stopped = True, False
        self._may_have_runs = True

    def claimant(self) -> Claimant | None:
        if not self._has_worker or not self._has_room:
            return None
        return self._lease.claimant

    @property
    def _has_room(self) -> bool:
        return len(self._executed) + len(self._claimed) < self._max_runs

    def submit(self, run: Run) -> bool:
        claimant = self._lease.claimant
        is_here = claimant is not None and run.owner_id == claimant.server_id
        if is_here:
            self._telemetry.run_claimed(is_recovery=False)
            self._hand_over(Claim(run.id, run.thread_id, run.fence, run.highest_seq))
        elif run.owner_id is None:
            self._may_have_runs = True
        self._bell.ring(RUNS, here_only=True)
        return is_here

    async def take(self) -> Claim:
        while True:
            if self._claimed and self._has_worker:
                claim = self._claimed.popleft()
                self._executed[claim.run_id] = claim
                return claim
            if self._may_have_runs and (claimant := self.claimant()) is not None:
                await self._claim_next(claimant)
                if self._claimed:
                    continue
            await self._wait_for_ring()

    def release(self, claim: Claim) -> None:
        if self._executed.get(claim.run_id) == claim:
            del self._executed[claim.run_id]
        if self._may_have_runs:
            self._bell.ring(RUNS, here_only=True)

    async def wait_for_turn(self, run: Run) -> None:
        if not _is_waiting(run):
            return
        topic = run_topic(run.id)
        self._awaited[topic] += 1
        try:
            with self._bell.watch(topic) as changes:
                # Read once more: the run may have been claimed before the watch began.
                while not self._stopped and await self._store.read(lambda tx: _waits(tx, run.id)):
                    await changes.wait(self._turn_poll_seconds)
        finally:
            self._awaited[topic] -= 1
            self._awaited += Counter()

    def stop(self) -> None:
        self._has_worker, self._stopped = False, True
        self._claimed.clear()
        for topic in self._awaited:
            self._bell.ring(topic, here_only=True)

    @property
    def _turn_poll_seconds(self) -> float:
        return TURN_POLL_SECONDS if self._bell.is_connected else POLL_SECONDS_WITHOUT_BELL

    async def _claim_next(self, claimant: Claimant) -> None:
        """Claim the next run, if there is one whose thread is free."""

        def work(tx: Transaction) -> tuple[Claim | None, bool]:
            return tx.queue.claim_next(claimant), tx.queue.is_empty()

        try:
            # To its end, even if the worker stops meanwhile: what was claimed must be known before it is given back.
            claim, is_empty = await finish(self._store.write(work))
        except BackendError:
            log.exception("store.unreachable", extra={"while": "claiming a run"})
            await asyncio.sleep(STORE_RETRY_SECONDS)
            return
        self._may_have_runs = not is_empty
        if claim is not None:
            self._telemetry.run_claimed(is_recovery=claim.is_recovery)
            self._hand_over(claim)
            self._bell.ring(run_topic(claim.run_id))

    async def _wait_for_ring(self) -> None:
        seconds = POLL_SECONDS if self._bell.is_connected else POLL_SECONDS_WITHOUT_BELL
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait(RUNS)
                return
        self._may_have_runs = True
        await self._find_forgotten()

    async def _find_forgotten(self) -> None:
        """Take the runs that this server has claimed without knowing it: the outcome of the commit was unknown."""
        claimant = self._lease.claimant
        if claimant is None:
            return
        with suppress(BackendError):
            for claim in await self._store.read(
                lambda tx: tx.queue.list_claims(claimant.server_id)
            ):
                self._hand_over(claim)

    def _hand_over(self, claim: Claim) -> None:
        """Give the claim to the worker, unless it has it already. A run that has ended meanwhile is left by the worker."""
        known = self._executed.get(claim.run_id)
        if known is not None and known.fence >= claim.fence:
            return
        if all(waiting.run_id != claim.run_id for waiting in self._claimed):
            self._claimed.append(claim)


def _is_waiting(run: Run) -> bool:
    return run.status is RunStatus.QUEUED and run.owner_id is None


def _waits(tx: Transaction, run_id: str) -> bool:
    run = tx.runs.find(run_id)
    return run is not None and _is_waiting(run)
