"""The newest events of one run in memory, and the readers that wait for more. What is older is in the store."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from holdfast.core.events import Event, RunEnded

# So many durable events stay for readers that are a little behind. Twice as many are let go by at a time.
KEPT: Final = 1_000
# What a reader gets at once. A slow one holds no more than this.
BATCH: Final = 200
# So many readers are woken by each event.
FEW: Final = 10
# A larger crowd is woken together, later by this much per reader. To wake one and to send it a line takes about
# 16 µs, so a crowd of any size has a sixth of the process; a thousand readers see a token 0.1 s late.
WAKE_DELAY_PER_READER_SECONDS: Final = 0.0001


class EventBuffer:
    """Each event after ``floor``. Up to there events are in the store, or they were lost in a crash.

    ``own``: this process carries the run, so nothing comes from anywhere else once it is closed.
    """

    def __init__(self, floor: int, *, is_local: bool) -> None:
        self.floor = floor
        self.is_local = is_local
        self.is_closed = False
        self.durable_seq = floor
        self._events: list[Event] = []
        self._waiting = 0
        self._changed = asyncio.Event()
        self._wake_timer: asyncio.TimerHandle | None = None

    @property
    def last_seq(self) -> int:
        return self._events[-1].seq if self._events else self.floor

    @property
    def has_ended(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1].fact, RunEnded)

    @property
    def has_waiting_readers(self) -> bool:
        """Somebody waits for news."""
        return self._waiting > 0

    def add(self, events: Sequence[Event]) -> None:
        self._events += events
        self._trim()
        self._notify()

    def mark_durable(self, seq: int) -> None:
        """Everything up to this number is in the store: it may be let go."""
        self.durable_seq = max(self.durable_seq, seq)
        self._trim()

    def close(self) -> None:
        self.is_closed = True
        self._notify()

    def events_after(self, seq: int) -> Sequence[Event]:
        """Some of what follows; only for a cursor that is not below ``floor``."""
        if self.last_seq <= seq:
            return ()
        start = bisect_right(self._events, seq, key=_seq)
        return self._events[start : start + BATCH]

    async def wait_for_events(self) -> None:
        """Wait until there may be more to read."""
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    def _trim(self) -> None:
        if len(self._events) < 2 * KEPT:
            return
        seq = min(self.durable_seq, self._events[-KEPT - 1].seq)
        end = bisect_right(self._events, seq, key=_seq)
        if end:
            self.floor = self._events[end - 1].seq
            del self._events[:end]

    def _notify(self) -> None:
        if self._waiting <= FEW:
            self._wake_readers()
        elif self._wake_timer is None:
            delay = self._waiting * WAKE_DELAY_PER_READER_SECONDS
            self._wake_timer = asyncio.get_running_loop().call_later(delay, self._wake_readers)

    def _wake_readers(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        self._changed.set()
        self._changed = asyncio.Event()


def _seq(event: Event) -> int:
    return event.seq
