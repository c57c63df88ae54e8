"""Owns the live runs: takes tickets, keeps one task per run, picks up what a dead process left behind,
stops a run at once when a cancel is on record, and leaves in order when the server stops."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast import logs
from holdfast.core.runs import Run, RunStatus
from holdfast.engine.interruption import Interruption
from holdfast.engine.runner import Runner
from holdfast.engine.watchdog import Watchdog
from holdfast.errors import BackendError, NotFound, StaleRun
from holdfast.ports.bell import CANCELS
from holdfast.ports.dispatch import Ticket
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# A store that is out of reach is tried again after this long; runs wait, nothing is lost.
STORE_RETRY_SECONDS = 2.0
# A cancel that another process of the deployment put on record rings no bell here: it is seen after this long.
# So is a run that has stalled.
POLL_SECONDS = 0.5
# What has been told to stop has this long to do so; then the worker leaves without it.
STOP_SECONDS = 5.0

StartRun = Callable[[str, Interruption], Awaitable[None]]


class Worker:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = Runner(services)
        self._live: dict[str, Interruption] = {}
        self._watchdog = Watchdog(services.clock, services.limits.run_stall_seconds)
        # Not in a group: a group waits for each of its tasks, and a run may be stuck for good.
        self._tasks: dict[asyncio.Task[None], Ticket] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._fatal_error: BaseException | None = None
        self._draining = asyncio.Event()
        self._drain_seconds = 0.0
        self._interrupted: set[str] = set()
        self._has_requeued = False

    @property
    def live_count(self) -> int:
        """How many runs it carries now."""
        return len(self._live)

    async def requeue_unfinished(self) -> None:
        """Put what a dead process left behind in line. Whoever takes messages does this before: a new run
        that comes first would stand in the way of the one that holds its thread."""
        self._has_requeued = True
        left_behind = await self._services.store.read(lambda tx: list(tx.runs.list_live()))
        self._interrupted = {run.id for run in left_behind if run.status is not RunStatus.QUEUED}
        self._submit(left_behind)

    async def run(self) -> None:
        """Work until drained or cancelled. Runs that are under way then stay as they are, for the next start."""
        if not self._has_requeued:
            await self.requeue_unfinished()
        try:
            async with asyncio.TaskGroup() as group:
                cancels = group.create_task(self._watch_cancels(), name="cancels")
                looking = group.create_task(self._poll(), name="looking")
                tickets = group.create_task(self._take_tickets(), name="tickets")
                await self._draining.wait()
                tickets.cancel()
                await self._drain_runs()
                for task in (cancels, looking):
                    task.cancel()
        finally:
            await self._stop_runs()
        if self._fatal_error is not None:
            raise self._fatal_error
        await self._withdraw_queued()

    def drain(self, seconds: float) -> None:
        """Begin no more runs. ``run`` ends once those under way have ended, or without them after so long;
        until then they can still be cancelled."""
        self._drain_seconds = seconds
        self._draining.set()

    async def _take_tickets(self) -> None:
        while True:
            ticket = await self._services.dispatch.take()
            begin: StartRun = self._runner.run
            if ticket.run_id in self._interrupted:
                self._interrupted.discard(ticket.run_id)
                begin = self._runner.resume
            task = asyncio.create_task(self._run_to_end(ticket, begin), name=ticket.run_id)
            self._tasks[task] = ticket
            # Not a ``finally`` of the task: one that is cancelled before it began has none.
            task.add_done_callback(self._on_task_done)

    async def _drain_runs(self) -> None:
        """Give the runs that are under way their time to end."""
        if not self._tasks:
            return
        told = {"count": len(self._tasks), "seconds": self._drain_seconds}
        log.info("runs.draining", extra=told)
        _, left = await asyncio.wait(
            self._tasks, timeout=self._drain_seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        if left:
            log.info("runs.deferred", extra={"count": len(left)})

    async def _stop_runs(self) -> None:
        """The runs that are under way stay as they are, those that were left behind have ended without their task."""
        tasks = (*self._tasks, *self._abandoned)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in stuck:
                log.error("run.stuck", extra={"run_id": task.get_name()})

    async def _withdraw_queued(self) -> None:
        """Let go whoever waits for a turn that will not come in this process. The runs stay queued."""
        try:
            waiting = await self._services.store.read(lambda tx: list(tx.runs.list_live()))
        except BackendError:
            log.exception("store.unreachable", extra={"while": "letting the queue go"})
            return
        for run in waiting:
            self._services.dispatch.withdraw(run.id)

    def _submit(self, runs: list[Run]) -> None:
        """Runs that hold their thread go before those that wait for it."""
        first = self._interrupted
        if runs:
            log.info("runs.requeued", extra={"count": len(runs), "interrupted": len(first)})
        for run in sorted(runs, key=lambda run: (run.id not in first, run.created_at)):
            self._services.events.open(run.id, after=run.highest_seq)
            self._services.dispatch.submit(Ticket(run.id, run.thread_id))

    async def _watch_cancels(self) -> None:
        """A ring only says that there is something to see: which runs to stop is in the store."""
        while True:
            await self._services.bell.wait(CANCELS)
            try:
                wanted = await self._services.store.read(lambda tx: tx.runs.cancelling_ids())
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for cancels"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
                self._services.bell.ring(CANCELS)
                continue
            for run_id in wanted:
                if (interruption := self._live.get(run_id)) is not None:
                    interruption.trigger()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if self._live:
                self._services.bell.ring(CANCELS)
                for run_id in self._watchdog.check(self._live):
                    await self._abandon(run_id)

    async def _run_to_end(self, ticket: Ticket, begin: StartRun) -> None:
        """See one run through, whatever happens to it: no error of a run may reach the other runs."""
        tries_left, why = self._services.limits.max_recoveries + 1, ""
        interruption = self._live[ticket.run_id] = Interruption()
        logs.bind(run_id=ticket.run_id)
        while tries_left:
            try:
                return await begin(ticket.run_id, interruption)
            except (StaleRun, NotFound):
                return log.info("run.superseded")
            except BackendError:
                log.exception("store.unreachable", extra={"while": "carrying the run"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception as error:
                log.exception("run.interrupted")
                tries_left, why = tries_left - 1, str(error)
            begin = self._runner.resume
        return await self._force_end(ticket.run_id, why)

    async def _force_end(self, run_id: str, why: str) -> None:
        """All that can be done for the run is to end it: nobody may wait for it for ever."""
        while True:
            try:
                return await self._runner.force_end(run_id, why)
            except StaleRun:
                # A cancel was put on record in the same moment: it is ended as that.
                continue
            except BackendError:
                log.exception("store.unreachable", extra={"while": "giving a run up"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception:
                log.exception("run.end_failed")
                return None

    async def _abandon(self, run_id: str) -> None:
        """What the run was doing did not stop when it was told to. The run is ended without it."""
        interruption = self._live.get(run_id)
        effect = interruption.effect if interruption else None
        told = {"run_id": run_id, "agent_id": effect.agent_id if effect else None}
        log.error("run.stuck", extra=told)
        await self._force_end(run_id, "What it was doing did not stop when it was told to.")
        for task, ticket in list(self._tasks.items()):
            if ticket.run_id == run_id:
                self._abandoned.add(task)
                self._release(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # No error of a run gets here: it is the process that ends.
            self._fatal_error = error
            self.drain(0)
        if task in self._tasks:
            self._release(task)
        # One that was left behind has come to its end at last.
        self._abandoned.discard(task)

    def _release(self, task: asyncio.Task[None]) -> None:
        ticket = self._tasks.pop(task)
        self._live.pop(ticket.run_id, None)
        self._services.events.close(ticket.run_id)
        self._services.dispatch.release(ticket)
