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
from holdfast.errors import BackendError, NotFound, RunMoved
from holdfast.ports.bell import CANCELS
from holdfast.ports.dispatch import Ticket
from holdfast.ports.house import House

log = logging.getLogger(__name__)

# A store that is out of reach is tried again after this long; runs wait, nothing is lost.
STORE_RETRY_SECONDS = 2.0
# A cancel that another process of the deployment put on record rings no bell here: it is seen after this long.
# So is a run that has stalled.
LOOK_SECONDS = 0.5
# What has been told to stop has this long to do so; then the worker leaves without it.
STOP_SECONDS = 5.0

Begin = Callable[[str, Interruption], Awaitable[None]]


class Worker:
    def __init__(self, house: House) -> None:
        self._house = house
        self._runner = Runner(house)
        self._live: dict[str, Interruption] = {}
        self._watchdog = Watchdog(house.clock, house.limits.run_stall_seconds)
        # Not in a group: a group waits for each of its tasks, and a run may be stuck for good.
        self._carried: dict[asyncio.Task[None], Ticket] = {}
        self._left_behind: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._leaving = asyncio.Event()
        self._drain_seconds = 0.0
        self._interrupted: set[str] = set()
        self._looked_back = False

    @property
    def live(self) -> int:
        """How many runs it carries now."""
        return len(self._live)

    async def look_back(self) -> None:
        """Put what a dead process left behind in line. Whoever takes messages does this before: a new run
        that comes first would stand in the way of the one that holds its thread."""
        self._looked_back = True
        left_behind = await self._house.store.read(lambda tx: list(tx.runs.live()))
        self._interrupted = {run.id for run in left_behind if run.status is not RunStatus.QUEUED}
        self._submit(left_behind)

    async def run(self) -> None:
        """Work until drained or cancelled. Runs that are under way then stay as they are, for the next start."""
        if not self._looked_back:
            await self.look_back()
        try:
            async with asyncio.TaskGroup() as group:
                cancels = group.create_task(self._watch_cancels(), name="cancels")
                looking = group.create_task(self._look_now_and_then(), name="looking")
                tickets = group.create_task(self._take_tickets(), name="tickets")
                await self._leaving.wait()
                tickets.cancel()
                await self._see_out()
                for task in (cancels, looking):
                    task.cancel()
        finally:
            await self._stop_runs()
        if self._broken is not None:
            raise self._broken
        await self._dismiss_queue()

    def drain(self, seconds: float) -> None:
        """Begin no more runs. ``run`` ends once those under way have ended, or without them after so long;
        until then they can still be cancelled."""
        self._drain_seconds = seconds
        self._leaving.set()

    async def _take_tickets(self) -> None:
        while True:
            ticket = await self._house.dispatch.take()
            begin: Begin = self._runner.run
            if ticket.run_id in self._interrupted:
                self._interrupted.discard(ticket.run_id)
                begin = self._runner.resume
            task = asyncio.create_task(self._carry(ticket, begin), name=ticket.run_id)
            self._carried[task] = ticket
            # Not a ``finally`` of the task: one that is cancelled before it began has none.
            task.add_done_callback(self._ended)

    async def _see_out(self) -> None:
        """Give the runs that are under way their time to end."""
        if not self._carried:
            return
        told = {"count": len(self._carried), "seconds": self._drain_seconds}
        log.info("runs.draining", extra=told)
        _, left = await asyncio.wait(
            self._carried, timeout=self._drain_seconds, return_when=asyncio.FIRST_EXCEPTION
        )
        if left:
            log.info("runs.left_to_the_next_start", extra={"count": len(left)})

    async def _stop_runs(self) -> None:
        """The runs that are under way stay as they are, those that were left behind have ended without their task."""
        tasks = (*self._carried, *self._left_behind)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in stuck:
                log.error("run.stuck", extra={"run_id": task.get_name()})

    async def _dismiss_queue(self) -> None:
        """Let go whoever waits for a turn that will not come in this process. The runs stay queued."""
        try:
            waiting = await self._house.store.read(lambda tx: list(tx.runs.live()))
        except BackendError:
            log.exception("store.unreachable", extra={"while": "letting the queue go"})
            return
        for run in waiting:
            self._house.dispatch.withdraw(run.id)

    def _submit(self, runs: list[Run]) -> None:
        """Runs that hold their thread go before those that wait for it."""
        first = self._interrupted
        if runs:
            log.info("runs.found", extra={"count": len(runs), "interrupted": len(first)})
        for run in sorted(runs, key=lambda run: (run.id not in first, run.created_at)):
            self._house.events.open(run.id, after=run.highest_seq)
            self._house.dispatch.submit(Ticket(run.id, run.thread_id))

    async def _watch_cancels(self) -> None:
        """A ring only says that there is something to see: which runs to stop is in the store."""
        while True:
            await self._house.bell.wait(CANCELS)
            try:
                wanted = await self._house.store.read(lambda tx: tx.runs.cancelling())
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for cancels"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
                self._house.bell.ring(CANCELS)
                continue
            for run_id in wanted:
                if (interruption := self._live.get(run_id)) is not None:
                    interruption.strike()

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._live:
                self._house.bell.ring(CANCELS)
                for run_id in self._watchdog.look(self._live):
                    await self._leave_behind(run_id)

    async def _carry(self, ticket: Ticket, begin: Begin) -> None:
        """See one run through, whatever happens to it: no error of a run may reach the other runs."""
        tries_left, why = self._house.limits.max_recoveries + 1, ""
        interruption = self._live[ticket.run_id] = Interruption()
        logs.bind(run_id=ticket.run_id)
        while tries_left:
            try:
                return await begin(ticket.run_id, interruption)
            except (RunMoved, NotFound):
                return log.info("run.taken_away")
            except BackendError:
                log.exception("store.unreachable", extra={"while": "carrying the run"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception as error:
                log.exception("run.interrupted")
                tries_left, why = tries_left - 1, str(error)
            begin = self._runner.resume
        return await self._give_up(ticket.run_id, why)

    async def _give_up(self, run_id: str, why: str) -> None:
        """All that can be done for the run is to end it: nobody may wait for it for ever."""
        while True:
            try:
                return await self._runner.give_up(run_id, why)
            except RunMoved:
                # A cancel was put on record in the same moment: it is ended as that.
                continue
            except BackendError:
                log.exception("store.unreachable", extra={"while": "giving a run up"})
                await asyncio.sleep(STORE_RETRY_SECONDS)
            except Exception:
                log.exception("run.lost")
                return None

    async def _leave_behind(self, run_id: str) -> None:
        """What the run was doing did not stop when it was told to. The run is ended without it."""
        interruption = self._live.get(run_id)
        effect = interruption.effect if interruption else None
        told = {"run_id": run_id, "agent_id": effect.agent_id if effect else None}
        log.error("run.stuck", extra=told)
        await self._give_up(run_id, "What it was doing did not stop when it was told to.")
        for task, ticket in list(self._carried.items()):
            if ticket.run_id == run_id:
                self._left_behind.add(task)
                self._let_go(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # No error of a run gets here: it is the process that ends.
            self._broken = error
            self.drain(0)
        if task in self._carried:
            self._let_go(task)
        # One that was left behind has come to its end at last.
        self._left_behind.discard(task)

    def _let_go(self, task: asyncio.Task[None]) -> None:
        ticket = self._carried.pop(task)
        self._live.pop(ticket.run_id, None)
        self._house.events.close(ticket.run_id)
        self._house.dispatch.release(ticket)
