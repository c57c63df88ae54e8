"""The event log on the store: runs of this process are read from memory, all others from their durable copy.

The process of a run rings the run's bell when events are durable, so readers elsewhere need not poll for them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from holdfast.adapters.event_log.event_buffer import BATCH_EVENTS, EventBuffer
from holdfast.core.events import Event, RunEnded
from holdfast.core.lifecycle import LIVE
from holdfast.core.runs import Run
from holdfast.errors import BackendError, NotFound
from holdfast.ports.bell import Bell, run_topic
from holdfast.ports.store import Store, Transaction

log = logging.getLogger(__name__)

# How often the store is read for a run that this process does not execute: usually its bell rings first.
POLL_SECONDS: Final = 1.0
POLL_SECONDS_WITHOUT_BELL: Final = 0.25


class SqlEventLog:
    def __init__(self, store: Store, bell: Bell) -> None:
        self._store = store
        self._bell = bell
        self._local: dict[str, EventBuffer] = {}
        # Runs that another process executes, or none yet. All readers of a run share one watch task.
        self._remote: dict[str, EventBuffer] = {}
        self._watch_tasks: set[asyncio.Task[None]] = set()
        self._is_disconnecting = False

    def open(self, run_id: str, after: int = 0) -> None:
        if self._is_disconnecting:
            return
        self._local.setdefault(run_id, EventBuffer(after))
        if (remote := self._remote.pop(run_id, None)) is not None:
            remote.close()

    def publish(self, events: Sequence[Event]) -> None:
        if not events:
            return
        buffer = self._local.get(events[0].run_id)
        if buffer is None:
            # The end of a run that nobody executes. Its readers find it in the store.
            self._bell.ring(run_topic(events[0].run_id))
            return
        buffer.add(events)
        if isinstance(events[-1].fact, RunEnded):
            self.close(events[-1].run_id)

    def mark_durable(self, run_id: str, seq: int) -> None:
        if (buffer := self._local.get(run_id)) is not None:
            buffer.mark_durable(seq)
        self._ring(run_id)

    def close(self, run_id: str) -> None:
        if (buffer := self._local.pop(run_id, None)) is not None:
            buffer.close()

    def disconnect_readers(self) -> None:
        self._is_disconnecting = True
        for buffer in (*self._local.values(), *self._remote.values()):
            buffer.close()
        self._local.clear()
        self._remote.clear()

    async def aclose(self) -> None:
        for task in self._watch_tasks:
            task.cancel()
        await asyncio.gather(*self._watch_tasks, return_exceptions=True)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        buffer = self._local.get(run_id)
        while True:
            if buffer is not None and after >= buffer.floor:
                events = buffer.events_after(after)
                if not events:
                    if buffer.is_closed:
                        # Only the store knows whether the run is over, or goes on elsewhere.
                        buffer = None
                    else:
                        await buffer.wait_for_events()
                    continue
            else:
                # Read before the store is: events up to this number are in the store by then, or were lost.
                floor = after if buffer is None else buffer.floor
                run, events = await self._load_after(run_id, after)
                if not events:
                    if run.status not in LIVE or self._is_disconnecting:
                        return
                    buffer = buffer or self._find_or_watch(run)
                    after = max(after, floor)
                    continue
            yield events
            after = events[-1].seq
            if isinstance(events[-1].fact, RunEnded):
                return

    async def _load_after(self, run_id: str, after: int) -> tuple[Run, Sequence[Event]]:
        def load(tx: Transaction) -> tuple[Run | None, Sequence[Event]]:
            return tx.runs.find(run_id), tx.events.list_after(run_id, after, BATCH_EVENTS)

        run, events = await self._store.read(load)
        if run is None:
            raise NotFound(f"Run with ID {run_id} not found")
        return run, events

    def _ring(self, run_id: str) -> None:
        """Tell readers in other processes that there are new events in the store."""
        self._bell.ring(run_topic(run_id))

    def _find_or_watch(self, run: Run) -> EventBuffer:
        buffer = self._local.get(run.id) or self._remote.get(run.id)
        if buffer is None:
            buffer = self._remote[run.id] = EventBuffer(run.last_event_seq)
            task = asyncio.create_task(self._watch(run.id, buffer), name=f"watch-{run.id}")
            self._watch_tasks.add(task)
            task.add_done_callback(self._watch_tasks.discard)
        return buffer

    async def _watch(self, run_id: str, buffer: EventBuffer) -> None:
        """Add the events of another process while readers wait for them. When the buffer is closed, each reader reads the
        store itself and gets the error, if there is one."""
        try:
            await self._fill(run_id, buffer)
        except (BackendError, NotFound) as error:
            fields = {"run_id": run_id, "why": str(error)}
            log.warning("events.watch_failed", extra=fields, exc_info=error)
        finally:
            if self._remote.get(run_id) is buffer:
                del self._remote[run_id]
            buffer.close()

    async def _fill(self, run_id: str, buffer: EventBuffer) -> None:
        with self._bell.watch(run_topic(run_id)) as changes:
            while await self._catch_up(run_id, buffer):
                connected = self._bell.is_connected
                await changes.wait(POLL_SECONDS if connected else POLL_SECONDS_WITHOUT_BELL)

    async def _catch_up(self, run_id: str, buffer: EventBuffer) -> bool:
        """Add the events that the store has by now; return whether to wait for more."""
        while True:
            run, events = await self._load_after(run_id, buffer.last_seq)
            if not events:
                return run.status in LIVE and buffer.has_waiting_readers and not buffer.is_closed
            buffer.add(events)
            buffer.mark_durable(events[-1].seq)
            if buffer.has_ended:
                return False
