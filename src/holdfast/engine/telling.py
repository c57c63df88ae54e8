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
from holdfast.ports.house import House
from holdfast.ports.store import Transaction

# How long a fact may be shown before it is durable: what a crash can cost.
WRITE_AFTER_SECONDS = 0.05


class Telling:
    def __init__(self, house: House, run: Run) -> None:
        self._house = house
        self._run_id = run.id
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._unwritten: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def tell(self, facts: Sequence[Fact]) -> None:
        """Show facts that no checkpoint has written. Raises what a write of earlier ones has met with:
        a run whose log is not kept must not go on as if it were."""
        if not facts:
            return
        if self._writing is not None and self._writing.done():
            await self._written()
        while self._seq + len(facts) > self._reserved:
            self._start_writing(len(facts))
            await self._written()
        events = [Event(self._run_id, seq, fact) for seq, fact in enumerate(facts, self._seq + 1)]
        self._seq += len(events)
        self._house.events.publish(events)
        self._unwritten += events
        self._write_soon()

    async def hand_over(self, state: State) -> State:
        """The state with what was shown meanwhile: the next checkpoint goes on from there."""
        await self._written()
        self._stop_timer()
        unwritten, self._unwritten = tuple(self._unwritten), []
        run = replace(state.run, last_event_seq=self._seq, reserved_seq=self._reserved)
        return replace(state, run=run, unwritten=unwritten)

    def take_back(self, run: Run) -> None:
        """Go on from where a checkpoint left the numbers."""
        self._seq = run.last_event_seq
        self._reserved = run.reserved_seq
        self._house.events.settle(self._run_id, self._seq)

    async def close(self) -> None:
        """Keep what was shown of a run that is left in the middle. If the store cannot, it is lost like in
        a crash: the next to carry the run goes on above the reserved numbers."""
        self._stop_timer()
        with suppress(BackendError):
            await self._written()
            if self._unwritten:
                self._start_writing()
                await self._written()

    def _write_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_AFTER_SECONDS, self._write_in_time)

    def _write_in_time(self) -> None:
        self._timer = None
        self._start_writing()

    def _start_writing(self, room: int = 0) -> None:
        """Write, and reserve at least so many numbers. None starts after one that failed, nor beside one that
        is under way: that sees to the rest when it is done."""
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(max(room, RESERVED_AHEAD)))

    async def _written(self) -> None:
        """Wait for the write that is under way. One that failed stays, and fails whoever comes here."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self, room: int) -> None:
        events, self._unwritten = self._unwritten, []
        written, reserved = self._seq, self._seq + room

        def work(tx: Transaction) -> None:
            tx.events.append(events)
            tx.runs.reserve(self._run_id, reserved)

        await self._house.store.write(work)
        self._writing = None
        self._reserved = reserved
        self._house.events.settle(self._run_id, written)
        if self._unwritten:
            self._write_soon()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
