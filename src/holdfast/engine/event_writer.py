"""Showing a run as it happens: facts are numbered and shown at once, and durable soon after.

A run has one Telling for as long as a worker holds it, so its numbers have a single writer. Numbers are
reserved durably before they are shown: after a crash no number is given twice.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from holdfast.core.events import Event, Fact
from holdfast.core.runs import Run
from holdfast.engine.checkpoint import RESERVED_AHEAD
from holdfast.engine.state import State
from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# How long a fact may be shown before it is durable: what a crash can cost.
WRITE_AFTER_SECONDS = 0.05


class EventWriter:
    def __init__(self, services: Services, run: Run) -> None:
        self._services = services
        self._run_id = run.id
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._pending: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._write_task: asyncio.Task[None] | None = None

    async def write(self, facts: Sequence[Fact]) -> None:
        """Show facts that no checkpoint has written. Raises what a write of earlier ones has met with:
        a run whose log is not kept must not go on as if it were."""
        if not facts:
            return
        if self._write_task is not None and self._write_task.done():
            await self._wait_for_write()
        while self._seq + len(facts) > self._reserved:
            self._start_write(len(facts))
            await self._wait_for_write()
        events = [Event(self._run_id, seq, fact) for seq, fact in enumerate(facts, self._seq + 1)]
        self._seq += len(events)
        self._services.events.publish(events)
        self._pending += events
        self._schedule_write()

    async def detach(self, state: State) -> State:
        """The state with what was shown meanwhile: the next checkpoint goes on from there."""
        await self._wait_for_write()
        self._stop_timer()
        unwritten, self._pending = tuple(self._pending), []
        run = replace(state.run, last_event_seq=self._seq, reserved_seq=self._reserved)
        return replace(state, run=run, pending_events=unwritten)

    def continue_from(self, run: Run) -> None:
        """Go on from where a checkpoint left the numbers."""
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._services.events.mark_durable(self._run_id, self._seq)

    async def close(self) -> None:
        """Keep what was shown of a run that is left in the middle. If the store cannot, it is lost like in
        a crash: the next to carry the run goes on above the reserved numbers."""
        self._stop_timer()
        with suppress(BackendError):
            await self._wait_for_write()
            if self._pending:
                self._start_write()
                await self._wait_for_write()

    def _schedule_write(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_AFTER_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._start_write()

    def _start_write(self, room: int = 0) -> None:
        """Write, and reserve at least so many numbers. None starts after one that failed, nor beside one that
        is under way: that sees to the rest when it is done."""
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_pending(max(room, RESERVED_AHEAD)))

    async def _wait_for_write(self) -> None:
        """Wait for the write that is under way. One that failed stays, and fails whoever comes here."""
        if self._write_task is not None:
            await asyncio.shield(self._write_task)

    async def _write_pending(self, room: int) -> None:
        events, self._pending = self._pending, []
        written, reserved = self._seq, self._seq + room

        def work(tx: Transaction) -> None:
            tx.events.append(events)
            tx.runs.reserve_seq(self._run_id, reserved)

        await self._services.store.write(work)
        self._write_task = None
        self._reserved = reserved
        self._services.events.mark_durable(self._run_id, written)
        if self._pending:
            self._schedule_write()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
