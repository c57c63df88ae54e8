"""The event log over the store: runs of this process are read from memory, all others from their durable copy."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from holdfast.adapters.event_log.event_buffer import BATCH, EventBuffer
from holdfast.core.events import Event, RunEnded
from holdfast.core.lifecycle import LIVE
from holdfast.core.runs import Run
from holdfast.errors import BackendError, NotFound
from holdfast.ports.store import Store, Transaction

log = logging.getLogger(__name__)

# How often the store is asked about a run that this process does not carry.
POLL_SECONDS: Final = 0.25


class SqlEventLog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._local: dict[str, EventBuffer] = {}
        # Runs that are carried elsewhere, or by nobody yet. All readers of one share one watch.
        self._remote: dict[str, EventBuffer] = {}
        self._watch_tasks: set[asyncio.Task[None]] = set()
        self._is_disconnecting = False

    def open(self, run_id: str, after: int = 0) -> None:
        self._local.setdefault(run_id, EventBuffer(after, is_local=True))
        if (watched := self._remote.pop(run_id, None)) is not None:
            watched.close()

    def publish(self, events: Sequence[Event]) -> None:
        live = self._local.get(events[0].run_id) if events else None
        if live is None:
            return
        live.add(events)
        if isinstance(events[-1].fact, RunEnded):
            self.close(events[-1].run_id)

    def mark_durable(self, run_id: str, seq: int) -> None:
        if (live := self._local.get(run_id)) is not None:
            live.mark_durable(seq)

    def close(self, run_id: str) -> None:
        if (live := self._local.pop(run_id, None)) is not None:
            live.close()

    def disconnect_readers(self) -> None:
        self._is_disconnecting = True
        for live in (*self._local.values(), *self._remote.values()):
            live.close()
        self._local.clear()
        self._remote.clear()

    async def aclose(self) -> None:
        for task in self._watch_tasks:
            task.cancel()
        await asyncio.gather(*self._watch_tasks, return_exceptions=True)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        live = self._local.get(run_id)
        while True:
            if live is not None and after >= live.floor:
                events = live.events_after(after)
                if not events:
                    if not live.is_closed:
                        await live.wait_for_events()
                    elif live.is_local:
                        return
                    else:
                        live = None
                    continue
            else:
                # Taken before the look into the store: what is below by then is there, or never was.
                floor = after if live is None else live.floor
                run, events = await self._load_after(run_id, after)
                if not events:
                    if run.status not in LIVE or self._is_disconnecting:
                        return
                    live = live or self._find_or_watch(run)
                    after = max(after, floor)
                    continue
            yield events
            after = events[-1].seq
            if isinstance(events[-1].fact, RunEnded):
                return

    async def _load_after(self, run_id: str, after: int) -> tuple[Run, Sequence[Event]]:
        def load(tx: Transaction) -> tuple[Run | None, Sequence[Event]]:
            return tx.runs.find(run_id), tx.events.list_after(run_id, after, BATCH)

        run, events = await self._store.read(load)
        if run is None:
            raise NotFound(f"Run with ID {run_id} not found")
        return run, events

    def _find_or_watch(self, run: Run) -> EventBuffer:
        live = self._local.get(run.id) or self._remote.get(run.id)
        if live is None:
            live = self._remote[run.id] = EventBuffer(run.last_event_seq, is_local=False)
            task = asyncio.create_task(self._watch(run.id, live), name=f"watch-{run.id}")
            self._watch_tasks.add(task)
            task.add_done_callback(self._watch_tasks.discard)
        return live

    async def _watch(self, run_id: str, live: EventBuffer) -> None:
        """Fill in what happens elsewhere, as long as anybody waits for it. A reader that finds this closed
        looks into the store for itself, and learns there what went wrong."""
        try:
            await self._fill(run_id, live)
        except (BackendError, NotFound) as error:
            log.warning("events.notifications_stopped", extra={"run_id": run_id, "why": str(error)})
        finally:
            if self._remote.get(run_id) is live:
                del self._remote[run_id]
            live.close()

    async def _fill(self, run_id: str, live: EventBuffer) -> None:
        while await self._catch_up(run_id, live):  # noqa: ASYNC110 - another process sets no event here
            await asyncio.sleep(POLL_SECONDS)

    async def _catch_up(self, run_id: str, live: EventBuffer) -> bool:
        """Add what the store has by now; whether it is worth while to wait for more."""
        while True:
            run, events = await self._load_after(run_id, live.last_seq)
            if not events:
                return run.status in LIVE and live.has_waiting_readers and not live.is_closed
            live.add(events)
            live.mark_durable(events[-1].seq)
            if live.has_ended:
                return False
