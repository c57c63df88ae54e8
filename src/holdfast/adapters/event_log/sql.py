"""The event log over the store: runs of this process are read from memory, all others from their durable copy."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from holdfast.adapters.event_log.live import BATCH, Live
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
        self._here: dict[str, Live] = {}
        # Runs that are carried elsewhere, or by nobody yet. All readers of one share one watch.
        self._elsewhere: dict[str, Live] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._hung_up = False

    def open(self, run_id: str, after: int = 0) -> None:
        self._here.setdefault(run_id, Live(after, own=True))
        if (watched := self._elsewhere.pop(run_id, None)) is not None:
            watched.close()

    def publish(self, events: Sequence[Event]) -> None:
        live = self._here.get(events[0].run_id) if events else None
        if live is None:
            return
        live.add(events)
        if isinstance(events[-1].fact, RunEnded):
            self.close(events[-1].run_id)

    def settle(self, run_id: str, seq: int) -> None:
        if (live := self._here.get(run_id)) is not None:
            live.settle(seq)

    def close(self, run_id: str) -> None:
        if (live := self._here.pop(run_id, None)) is not None:
            live.close()

    def hang_up(self) -> None:
        self._hung_up = True
        for live in (*self._here.values(), *self._elsewhere.values()):
            live.close()
        self._here.clear()
        self._elsewhere.clear()

    async def aclose(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        live = self._here.get(run_id)
        while True:
            if live is not None and after >= live.floor:
                events = live.after(after)
                if not events:
                    if not live.closed:
                        await live.news()
                    elif live.own:
                        return
                    else:
                        live = None
                    continue
            else:
                # Taken before the look into the store: what is below by then is there, or never was.
                floor = after if live is None else live.floor
                run, events = await self._stored(run_id, after)
                if not events:
                    if run.status not in LIVE or self._hung_up:
                        return
                    live = live or self._live(run)
                    after = max(after, floor)
                    continue
            yield events
            after = events[-1].seq
            if isinstance(events[-1].fact, RunEnded):
                return

    async def _stored(self, run_id: str, after: int) -> tuple[Run, Sequence[Event]]:
        def load(tx: Transaction) -> tuple[Run | None, Sequence[Event]]:
            return tx.runs.find(run_id), tx.events.after(run_id, after, BATCH)

        run, events = await self._store.read(load)
        if run is None:
            raise NotFound(f"Run with ID {run_id} not found")
        return run, events

    def _live(self, run: Run) -> Live:
        live = self._here.get(run.id) or self._elsewhere.get(run.id)
        if live is None:
            live = self._elsewhere[run.id] = Live(run.last_event_seq, own=False)
            task = asyncio.create_task(self._watch(run.id, live), name=f"watch-{run.id}")
            self._watches.add(task)
            task.add_done_callback(self._watches.discard)
        return live

    async def _watch(self, run_id: str, live: Live) -> None:
        """Fill in what happens elsewhere, as long as anybody waits for it. A reader that finds this closed
        looks into the store for itself, and learns there what went wrong."""
        try:
            await self._fill(run_id, live)
        except (BackendError, NotFound) as error:
            log.warning("events.watch_ended", extra={"run_id": run_id, "why": str(error)})
        finally:
            if self._elsewhere.get(run_id) is live:
                del self._elsewhere[run_id]
            live.close()

    async def _fill(self, run_id: str, live: Live) -> None:
        while await self._catch_up(run_id, live):  # noqa: ASYNC110 - another process sets no event here
            await asyncio.sleep(POLL_SECONDS)

    async def _catch_up(self, run_id: str, live: Live) -> bool:
        """Add what the store has by now; whether it is worth while to wait for more."""
        while True:
            run, events = await self._stored(run_id, live.last)
            if not events:
                return run.status in LIVE and live.watched and not live.closed
            live.add(events)
            live.settle(events[-1].seq)
            if live.ended:
                return False
