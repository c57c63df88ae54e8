"""Publishing the events of a run as they happen: they are numbered and shown at once, and durable soon after.

A run has one EventWriter while a worker works on it, so its numbers have a single writer. Numbers are reserved
durably before they are used: after a crash no number is used twice.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from holdfast.core.events import Event, Fact, number_facts
from holdfast.core.runs import Run
from holdfast.engine.state import State
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError, NotFound, StaleRun
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# How long an event may be shown before it is durable: a crash loses at most this much.
WRITE_AFTER_SECONDS = 0.05
# How many event numbers are reserved at a time; one write of a stream covers many tokens.
RESERVED_AHEAD = 1_000


class EventWriter:
    def __init__(self, services: Services, run: Run) -> None:
        self._services = services
        self._run = run
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._pending: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._write_task: asyncio.Task[None] | None = None

    async def write(self, facts: Sequence[Fact]) -> None:
        """Publish facts that no checkpoint has written. Raises the error of an earlier write that failed: a run whose
        events are not stored must not continue."""
        if not facts:
            return
        if self._write_task is not None and self._write_task.done():
            await self._wait_for_write()
        while self._seq + len(facts) > self._reserved:
            self._start_write(len(facts))
            await self._wait_for_write()
        events = number_facts(self._run.id, self._seq, facts)
        self._seq += len(events)
        self._services.events.publish(events)
        self._pending += events
        self._schedule_write()

    async def write_at_once(self, facts: Sequence[Fact]) -> None:
        """Store facts and then publish them, while nothing else is being written. BackendError if the store cannot be
        reached: then these facts are lost, and the run may continue. Their numbers are not used again."""
        events = number_facts(self._run.id, self._seq, facts)
        self._seq += len(events)
        reserved = max(self._reserved, self._seq)

        def work(tx: Transaction) -> None:
            tx.runs.reserve_seq(self._run, reserved)
            tx.events.append(events)

        await self._services.store.write(work)
        self._reserved = reserved
        self._services.events.publish(events)
        self._services.events.mark_durable(self._run.id, self._seq)

    async def detach(self, state: State) -> State:
        """The state with the events that are not durable yet, and with the current numbers, for the next checkpoint."""
        await self._wait_for_all_writes()
        pending, self._pending = tuple(self._pending), []
        run = replace(state.run, last_event_seq=self._seq, reserved_seq=self._reserved)
        return replace(state, run=run, pending_events=pending)

    def continue_from(self, run: Run) -> None:
        """Continue with the numbers that a checkpoint has left."""
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._services.events.mark_durable(self._run.id, self._seq)

    async def close(self) -> None:
        """Store what was shown of a run that stays unfinished. If the store is out of reach, or another server has the
        run by now, it is lost, as in a crash: whoever resumes the run continues above the reserved numbers."""
        # A run that stops because the lease is lost may be told to stop once more, by the end of the server.
        await finish(self._write_rest())

    async def _write_rest(self) -> None:
        try:
            with suppress(BackendError, StaleRun, NotFound):
                await self._wait_for_all_writes()
                if self._pending:
                    self._start_write()
                    await self._wait_for_all_writes()
        finally:
            # After an error the timer may still be set.
            self._stop_timer()

    def _schedule_write(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_AFTER_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._start_write()

    def _start_write(self, count: int = 0) -> None:
        """Start a write that reserves at least so many numbers. No write starts after one that failed, or while
        another is running: that one schedules the next when it is done."""
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_pending(max(count, RESERVED_AHEAD)))

    async def _wait_for_write(self) -> None:
        """Wait for the running write. A write that failed stays, and its error is raised each time."""
        if self._write_task is not None:
            await asyncio.shield(self._write_task)

    async def _wait_for_all_writes(self) -> None:
        """Wait until no write is running, and schedule none. The end of a write may schedule the next one, which begins
        before this task goes on if the loop is late."""
        while self._write_task is not None:
            await self._wait_for_write()
        self._stop_timer()

    async def _write_pending(self, count: int) -> None:
        events, self._pending = self._pending, []
        written, reserved = self._seq, self._seq + count

        def work(tx: Transaction) -> None:
            # First: another server that has the run by now may have given these numbers to its events.
            tx.runs.reserve_seq(self._run, reserved)
            tx.events.append(events)

        await self._services.store.write(work)
        self._write_task = None
        self._reserved = reserved
        self._services.events.mark_durable(self._run.id, written)
        if self._pending:
            self._schedule_write()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
