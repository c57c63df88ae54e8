"""The newest events of one run in memory, and the readers that wait for more. Older events are in the store."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from holdfast.core.events import Event, RunEnded

# How many durable events stay in memory for readers that are a little behind. They are trimmed at twice that number.
KEPT_EVENTS: Final = 1_000
# How many events a reader gets at once, at most.
BATCH_EVENTS: Final = 200
# Up to this number, readers are woken by each event.
FEW_READERS: Final = 10
# More readers are woken together, with a delay of this much per reader. Waking a reader and sending it a line takes about
# 16 µs, so readers use at most a sixth of the process, however many there are; a thousand readers see a token 0.1 s late.
WAKE_DELAY_PER_READER_SECONDS: Final = 0.0001
# How many are woken in one turn of the event loop: other requests need not wait for thousands of readers.
WAKE_BATCH: Final = 100


class EventBuffer:
    """The events with a number above ``floor``. Events up to there are in the store, or were lost in a crash."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.is_closed = False
        self.durable_seq = floor
        self._events: list[Event] = []
        self._waiting: dict[asyncio.Future[None], None] = {}
        # Those who wait, and those who are woken but have not run yet.
        self._readers = 0
        self._wake_timer: asyncio.TimerHandle | None = None

    @property
    def last_seq(self) -> int:
        return self._events[-1].seq if self._events else self.floor

    @property
    def has_ended(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1].fact, RunEnded)

    @property
    def has_waiting_readers(self) -> bool:
        return self._readers > 0

    def add(self, events: Sequence[Event]) -> None:
        self._events += events
        self._trim()
        self._notify()

    def mark_durable(self, seq: int) -> None:
        """Events up to this number are in the store and may be dropped."""
        self.durable_seq = max(self.durable_seq, seq)
        self._trim()

    def close(self) -> None:
        self.is_closed = True
        self._notify()

    def events_after(self, seq: int) -> Sequence[Event]:
        """Return the next batch of events with a higher number. ``seq`` must not be below ``floor``."""
        if self.last_seq <= seq:
            return ()
        start = bisect_right(self._events, seq, key=_seq)
        return self._events[start : start + BATCH_EVENTS]

    async def wait_for_events(self) -> None:
        """Wait until there may be more to read."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        self._readers += 1
        try:
            await woken
        finally:
            self._readers -= 1
            self._waiting.pop(woken, None)

    def _trim(self) -> None:
        if len(self._events) < 2 * KEPT_EVENTS:
            return
        seq = min(self.durable_seq, self._events[-KEPT_EVENTS - 1].seq)
        end = bisect_right(self._events, seq, key=_seq)
        if end:
            self.floor = self._events[end - 1].seq
            del self._events[:end]

    def _notify(self) -> None:
        if len(self._waiting) <= FEW_READERS:
            self._wake_readers()
        elif self._wake_timer is None:
            delay = len(self._waiting) * WAKE_DELAY_PER_READER_SECONDS
            self._wake_timer = asyncio.get_running_loop().call_later(delay, self._wake_readers)

    def _wake_readers(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        due, self._waiting = deque(self._waiting), {}
        _wake_batch(due)


def _wake_batch(due: deque[asyncio.Future[None]]) -> None:
    for woken in [due.popleft() for _ in range(min(WAKE_BATCH, len(due)))]:
        # A reader may have left.
        if not woken.done():
            woken.set_result(None)
    if due:
        asyncio.get_running_loop().call_soon(_wake_batch, due)


def _seq(event: Event) -> int:
    return event.seq
