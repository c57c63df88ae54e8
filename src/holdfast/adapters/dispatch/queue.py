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
        # Whether runs wait for room. New ones wait behind them.
        self._lacks_room = False
        self._has_worker = False
        self._stopped = False
        # Set if ``take`` may have something to do. What happens here does not ring the bell of the queue: a run that was
        # claimed when it was stored costs no look at the queue.
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        # The runs whose turn requests of this server wait for.
        self._awaited: Counter[str] = Counter()

    def start(self) -> None:
        self._has_worker, self._stopped = True, False
        self._note_runs()
        if self._listening is None and self._max_runs > 0:
            self._listening = asyncio.create_task(self._listen(), name="queue")

    def claimant(self, *, is_nested: bool = False) -> Claimant | None:
        if not self._has_worker or self._max_runs == 0:
            return None
        if not is_nested and (self._lacks_room or not self._has_room):
            return None
        return self._lease.claimant

    @property
    def _has_room(self) -> bool:
        return len(self._executed) + len(self._claimed) < self._max_runs

    def submit(self, run: Run) -> bool:
        if run.owner_id is None:
            self._note_runs()
            return False
        claimant = self._lease.claimant
        if claimant is None or claimant.server_id != run.owner_id:
            return False
        self._telemetry.run_claimed(is_recovery=False)
        self._hand_over(Claim(run.id, run.thread_id, run.fence, run.highest_seq))
        return True

    async def take(self) -> Claim:
        while True:
            # Before anything is looked at: what changes meanwhile sets it again.
            self._changed.clear()
            if self._claimed and self._has_worker:
                claim = self._claimed.popleft()
                self._executed[claim.run_id] = claim
                return claim
            if not (self._may_have_runs and await self._claim_next()):
                await self._changed.wait()

    def release(self, claim: Claim) -> None:
        if self._executed.get(claim.run_id) == claim:
            del self._executed[claim.run_id]
        # Also while the queue is being looked through, which may be too early to see that the thread is free.
        self._changed.set()

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
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        for topic in self._awaited:
            self._bell.ring(topic, here_only=True)

    @property
    def _turn_poll_seconds(self) -> float:
        return TURN_POLL_SECONDS if self._bell.is_connected else POLL_SECONDS_WITHOUT_BELL

    def _note_runs(self) -> None:
        """Runs may wait in the queue: look there."""
        self._may_have_runs = True
        self._changed.set()

    async def _claim_next(self) -> bool:
        """Claim the next run whose thread is free, if there is one and room for it; return whether."""
        claimant = self._lease.claimant
        self._lacks_room = not self._has_room
        if claimant is None or self._lacks_room or not self._has_worker:
            return False

        def work(tx: Transaction) -> tuple[Claim | None, bool]:
            return tx.queue.claim_next(claimant), tx.queue.is_empty()

        # Before the queue is read: a run that is stored meanwhile sets it again.
        self._may_have_runs = False
        try:
            # To its end, even if the worker stops meanwhile: what was claimed must be known before it is given back.
            claim, is_empty = await finish(self._store.write(work))
        except BackendError:
            log.exception("store.unreachable", extra={"while": "claiming a run"})
            await asyncio.sleep(STORE_RETRY_SECONDS)
            self._note_runs()
            return False
        self._may_have_runs |= not is_empty
        if claim is None:
            return False
        self._telemetry.run_claimed(is_recovery=claim.is_recovery)
        self._hand_over(claim)
        self._bell.ring(run_topic(claim.run_id))
        return True

    async def _listen(self) -> None:
        """Look into the queue when something rings, and now and then anyway. Rings do not put that off: a busy server must
        find forgotten runs too."""
        loop = asyncio.get_running_loop()
        polled_at = loop.time()
        while True:
            seconds = POLL_SECONDS if self._bell.is_connected else POLL_SECONDS_WITHOUT_BELL
            try:
                async with asyncio.timeout_at(polled_at + seconds):
                    await self._bell.wait(RUNS)
                is_due = loop.time() >= polled_at + seconds
            except TimeoutError:
                # Whatever the clock says: a timer may fire a moment before its time.
                is_due = True
            self._note_runs()
            if is_due:
                polled_at = loop.time()
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
            self._changed.set()


def _is_waiting(run: Run) -> bool:
    return run.status is RunStatus.QUEUED and run.owner_id is None


def _waits(tx: Transaction, run_id: str) -> bool:
    run = tx.runs.find(run_id)
    return run is not None and _is_waiting(run)
