"""The worker: takes tickets, runs one task per run, requeues the unfinished runs of a dead process, interrupts a run
whose cancel is recorded, and drains the runs when the server stops."""

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

# How long to wait before an unreachable store is tried again. Runs wait meanwhile; nothing is lost.
STORE_RETRY_SECONDS = 2.0
# How often the store is checked for cancels that another process has recorded, because the bell only rings within a
# process; and how often stalled runs are looked for.
POLL_SECONDS = 0.5
# How long cancelled tasks may take to stop before the worker ends without them.
STOP_SECONDS = 5.0

StartRun = Callable[[str, Interruption], Awaitable[None]]


class Worker:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = Runner(services)
        self._live: dict[str, Interruption] = {}
        self._watchdog = Watchdog(services.clock, services.limits.run_stall_seconds)
        # Not a TaskGroup: a group waits for all of its tasks, and a run may never stop.
        self._tasks: dict[asyncio.Task[None], Ticket] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
        self._fatal_error: BaseException | None = None
        self._draining = asyncio.Event()
        self._drain_seconds = 0.0
        self._interrupted: set[str] = set()
        self._has_requeued = False

    @property
    def live_count(self) -> int:
        """How many runs this worker works on now."""
        return len(self._live)

    async def requeue_unfinished(self) -> None:
        """Queue the unfinished runs of a dead process. This must happen before new messages are accepted: a new run
        must not come before the unfinished one that holds its thread."""
        self._has_requeued = True
        unfinished = await self._services.store.read(lambda tx: list(tx.runs.list_live()))
        self._interrupted = {run.id for run in unfinished if run.status is not RunStatus.QUEUED}
        self._submit(unfinished)

    async def run(self) -> None:
        """Work until drained or cancelled. Runs that have not ended by then stay unfinished, for the next start."""
        if not self._has_requeued:
            await self.requeue_unfinished()
        try:
            async with asyncio.TaskGroup() as group:
                cancels = group.create_task(self._watch_cancels(), name="cancels")
                polling = group.create_task(self._poll(), name="polling")
                tickets = group.create_task(self._take_tickets(), name="tickets")
                await self._draining.wait()
                tickets.cancel()
                await self._drain_runs()
                for task in (cancels, polling):
                    task.cancel()
        finally:
            await self._stop_runs()
        if self._fatal_error is not None:
            raise self._fatal_error
        await self._withdraw_queued()

    def drain(self, seconds: float) -> None:
        """Start no more runs. ``run`` ends once the current ones have ended, or after so many seconds. Until then
        they can still be cancelled."""
        self._drain_seconds = seconds
        self._draining.set()

    async def _take_tickets(self) -> None:
        while True:
            ticket = await self._services.dispatch.take()
            start: StartRun = self._runner.run
            if ticket.run_id in self._interrupted:
                self._interrupted.discard(ticket.run_id)
                start = self._runner.resume
            task = asyncio.create_task(self._run_to_end(ticket, start), name=ticket.run_id)
            self._tasks[task] = ticket
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

    async def _withdraw_queued(self) -> None:
        """Release the requests that wait for the turn of a run that this process will not start. The runs stay
        queued."""
        try:
            waiting = await self._services.store.read(lambda tx: list(tx.runs.list_live()))
        except BackendError:
            log.exception("store.unreachable", extra={"while": "withdrawing queued runs"})
            return
        for run in waiting:
            self._services.dispatch.withdraw(run.id)

    def _submit(self, runs: list[Run]) -> None:
        """Submit a ticket for each run; runs that hold their thread come before those that wait for it."""
        first = self._interrupted
        if runs:
            log.info("runs.requeued", extra={"count": len(runs), "interrupted": len(first)})
        for run in sorted(runs, key=lambda run: (run.id not in first, run.created_at)):
            self._services.events.open(run.id, after=run.highest_seq)
            self._services.dispatch.submit(Ticket(run.id, run.thread_id))

    async def _watch_cancels(self) -> None:
        """Interrupt the runs whose cancel is recorded. The bell only says that there are some; the store has them."""
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

    async def _run_to_end(self, ticket: Ticket, start: StartRun) -> None:
        """Take one run to its end. No error of a run may reach other runs."""
        attempts_left, why = self._services.limits.max_recoveries + 1, ""
        interruption = self._live[ticket.run_id] = Interruption()
        logs.bind(run_id=ticket.run_id)
        while attempts_left:
            try:
                return await start(ticket.run_id, interruption)
            except (StaleRun, NotFound):
                return log.info("run.superseded")
            except BackendError:
                log.exception("store.unreachable", extra={"while": "executing a run"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception as error:
                log.exception("run.interrupted")
                attempts_left, why = attempts_left - 1, str(error)
            start = self._runner.resume
        return await self._force_end(ticket.run_id, why)

    async def _force_end(self, run_id: str, why: str) -> None:
        """End a run that cannot continue, so that no client waits for it without limit."""
        while True:
            try:
                return await self._runner.force_end(run_id, why)
            except StaleRun:
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
        await self._force_end(run_id, "What it was doing did not stop when it was told to.")
        for task, ticket in list(self._tasks.items()):
            if ticket.run_id == run_id:
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
        ticket = self._tasks.pop(task)
        self._live.pop(ticket.run_id, None)
        self._services.events.close(ticket.run_id)
        self._services.dispatch.release(ticket)
