"""The worker: executes the runs that this server has claimed, one task each. It interrupts a run whose cancel is
recorded, stops all runs when the lease is lost, and gives back what is unfinished when the server stops."""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from holdfast import logs
from holdfast.core.servers import Claim
from holdfast.engine.interruption import Interruption
from holdfast.engine.lease_check import is_lost
from holdfast.engine.runner import Runner
from holdfast.engine.store_writes import finish
from holdfast.engine.watchdog import Watchdog
from holdfast.errors import BackendError, NotFound, StaleRun
from holdfast.ports.bell import CANCELS, RUNS
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# How long to wait before an unreachable store is tried again. Runs wait meanwhile; nothing is lost.
STORE_RETRY_SECONDS: Final = 2.0
# How often the store is checked for cancels whose wake-up was lost, how often stalled runs are looked for, and how often
# a server that drains looks for claims to give back.
POLL_SECONDS: Final = 0.5
# How long cancelled tasks may take to stop before the worker ends without them.
STOP_SECONDS: Final = 5.0


class Worker:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = Runner(services)
        # By run: what interrupts it, and the claim by which it is executed.
        self._live: dict[str, Interruption] = {}
        self._claims: dict[str, Claim] = {}
        self._watchdog = Watchdog(services.clock, services.limits.run_stall_seconds)
        # Not a TaskGroup: a group waits for all of its tasks, and a run may never stop.
        self._tasks: dict[asyncio.Task[None], Claim] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._fatal_error: BaseException | None = None
        self._draining = asyncio.Event()
        self._drain_seconds = 0.0

    @property
    def live_count(self) -> int:
        """How many runs this worker works on now."""
        return len(self._live)

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    async def run(self) -> None:
        """Work until drained or cancelled. Runs that have not ended by then go back into the queue: for other servers,
        or for the next start."""
        if self._services.lease.claimant is None:
            await self._services.lease.register()
        self._services.dispatch.start()
        try:
            async with asyncio.TaskGroup() as group:
                side_tasks = [
                    group.create_task(self._watch_cancels(), name="cancels"),
                    group.create_task(self._poll(), name="polling"),
                    group.create_task(self._watch_lease(), name="lease"),
                ]
                claims = group.create_task(self._take_claims(), name="claims")
                await self._draining.wait()
                claims.cancel()
                side_tasks.append(
                    group.create_task(self._give_back_unstarted(), name="giving back")
                )
                await self._drain_runs()
                for task in side_tasks:
                    task.cancel()
        finally:
            self._services.dispatch.stop()
            await self._stop_runs()
            await self._give_back()
        if self._fatal_error is not None:
            raise self._fatal_error

    def drain(self, seconds: float) -> None:
        """Start no more runs. ``run`` ends once the current ones have ended, or after so many seconds. Until then
        they can still be cancelled."""
        self._drain_seconds = seconds
        self._services.dispatch.stop()
        self._draining.set()

    async def _take_claims(self) -> None:
        while True:
            claim = await self._services.dispatch.take()
            self._services.events.open(claim.run_id, after=claim.last_seq)
            task = asyncio.create_task(self._run_to_end(claim), name=claim.run_id)
            self._tasks[task] = self._claims[claim.run_id] = claim
            # Not a ``finally`` of the task: a task that is cancelled before it has started never executes it.
            task.add_done_callback(self._on_task_done)

    async def _drain_runs(self) -> None:
        """Wait for the current runs to end, within the time for draining."""
        if not self._tasks:
            return
        fields = {"count": len(self._tasks), "seconds": self._drain_seconds}
        log.info("runs.draining", extra=fields)
        _, unfinished = await asyncio.wait(
            self._tasks, timeout=self._drain_seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        if unfinished:
            log.info("runs.deferred", extra={"count": len(unfinished)})

    async def _stop_runs(self) -> None:
        """Cancel all tasks. Their runs stay unfinished, except those of abandoned tasks, which have ended already."""
        tasks = (*self._tasks, *self._abandoned)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in stuck:
                log.error("run.stuck", extra={"run_id": task.get_name()})

    async def _give_back_unstarted(self) -> None:
        """While this server drains, let others execute what it has claimed and does not execute: messages that were being
        stored when the drain began."""
        while True:
            await self._give_back(keep=[claim.run_id for claim in self._tasks.values()])
            await asyncio.sleep(POLL_SECONDS)

    async def _give_back(self, *, keep: Collection[str] = ()) -> None:
        """Put the unfinished runs of this server back into the queue, but those to keep, and wake the others. If the store
        is out of reach, they are released when the lease has expired."""
        claimant = self._services.lease.claimant
        if claimant is None:
            return
        try:
            # To its end: an error that comes after the drain must be heard too.
            count = await finish(
                self._services.store.write(
                    lambda tx: tx.queue.release(claimant.server_id, keep=keep)
                )
            )
        except BackendError:
            log.exception("store.unreachable", extra={"while": "giving back unfinished runs"})
            return
        if count:
            log.info("runs.released", extra={"count": count})
            self._services.bell.ring(RUNS)

    async def _watch_lease(self) -> None:
        """When the lease is lost, stop all runs at once: other servers go on with them. Then register again."""
        lease = self._services.lease
        while True:
            await lease.wait_until_lost()
            log.error("lease.lost", extra={"live_runs": len(self._tasks)})
            self._services.telemetry.lease_lost()
            await self._stop_runs()
            await lease.register()
            log.warning("lease.renewed")
            self._services.bell.ring(RUNS, here_only=True)

    async def _watch_cancels(self) -> None:
        """Interrupt the runs whose cancel is recorded. The bell only says that there are some; the store has them."""
        while True:
            await self._services.bell.wait(CANCELS)
            if not self._live:
                continue
            try:
                wanted = await self._services.store.read(lambda tx: tx.runs.cancelling_ids())
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for cancels"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
                self._services.bell.ring(CANCELS, here_only=True)
                continue
            for run_id in wanted:
                if (interruption := self._live.get(run_id)) is not None:
                    interruption.trigger()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._live:
                self._services.bell.ring(CANCELS, here_only=True)
                for run_id in self._watchdog.check(self._live):
                    await self._abandon(run_id)

    async def _run_to_end(self, claim: Claim) -> None:
        """Take one run to its end. No error of a run may reach other runs."""
        attempts_left, why = self._services.limits.max_recoveries + 1, ""
        interruption = self._live[claim.run_id] = Interruption()
        logs.bind(run_id=claim.run_id)
        while attempts_left:
            try:
                return await self._runner.run(claim, interruption)
            except (StaleRun, NotFound) as error:
                return self._on_superseded(error)
            except BackendError:
                log.exception("store.unreachable", extra={"while": "executing a run"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception as error:
                if is_lost(error):
                    return self._on_taken()
                log.exception("run.interrupted")
                attempts_left, why = attempts_left - 1, str(error)
        return await self._force_end(claim, why)

    def _on_superseded(self, error: Exception) -> None:
        """The run is another server's, or over. Nothing is written."""
        if is_lost(error):
            self._on_taken()
        else:
            log.info("run.superseded")

    def _on_taken(self) -> None:
        log.warning("run.fenced")
        self._services.telemetry.write_fenced()

    async def _force_end(self, claim: Claim, why: str) -> None:
        """End a run that cannot continue, so that no client waits for it without limit."""
        while True:
            try:
                return await self._runner.force_end(claim, why)
            except StaleRun as error:
                if is_lost(error):
                    return self._on_superseded(error)
                # A cancel was recorded at the same time: the run ends as cancelled.
                continue
            except BackendError:
                log.exception("store.unreachable", extra={"while": "ending a run by force"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception:
                log.exception("run.end_failed")
                return None

    async def _abandon(self, run_id: str) -> None:
        """End a run whose effect does not stop after an interruption, without waiting for its task."""
        interruption = self._live.get(run_id)
        effect = interruption.effect if interruption else None
        fields = {"run_id": run_id, "agent_id": effect.agent_id if effect else None}
        log.error("run.stuck", extra=fields)
        for task, claim in list(self._tasks.items()):
            if claim.run_id == run_id:
                await self._force_end(claim, "What it was doing did not stop when it was told to.")
                if task in self._tasks:
                    self._abandoned.add(task)
                    self._release(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # ``_run_to_end`` catches the errors of runs, so this one must end the process.
            self._fatal_error = error
            self.drain(0)
        if task in self._tasks:
            self._release(task)
        # It may be an abandoned task that has stopped at last.
        self._abandoned.discard(task)

    def _release(self, task: asyncio.Task[None]) -> None:
        claim = self._tasks.pop(task)
        self._services.dispatch.release(claim)
        if self._claims.get(claim.run_id) == claim:
            # Otherwise this server has claimed the run again.
            del self._claims[claim.run_id]
            self._live.pop(claim.run_id, None)
            self._services.events.close(claim.run_id)
