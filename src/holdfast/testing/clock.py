"""A clock that stands still until a test moves it."""

import threading
from datetime import UTC, datetime, timedelta

from holdfast.testing.moments import DEFAULT_TIMEOUT_SECONDS, Moment

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """`now` and `monotonic` move together, and only by `advance`, which also wakes sleepers that are due.

    >>> clock = FakeClock()
    >>> clock.advance(90)
    >>> clock.now().isoformat()
    '2026-01-01T00:01:30+00:00'
    """

    def __init__(self, start: datetime = _START) -> None:
        if start.tzinfo is None:
            raise ValueError("a FakeClock starts at an aware datetime")
        self._start = start.astimezone(UTC)
        self._elapsed_seconds = 0.0
        self._lock = threading.Lock()
        # When each sleeper is due, and the moment that wakes it.
        self._sleepers: list[tuple[float, Moment]] = []
        self._sleeps: list[float] = []
        self._waiters: list[tuple[int, Moment]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def monotonic(self) -> float:
        return self._elapsed_seconds

    def monotonic_ns(self) -> int:
        return round(self._elapsed_seconds * 1e9)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not go backwards")
        with self._lock:
            self._elapsed_seconds += seconds
            for due, awake in self._sleepers:
                if due <= self._elapsed_seconds:
                    awake.happen()

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has advanced the clock by so many seconds."""
        with self._lock:
            sleeper = (self._elapsed_seconds + seconds, Moment(f"the end of {seconds} s of sleep"))
            self._sleepers.append(sleeper)
            self._sleeps.append(seconds)
            for number, moment in self._waiters:
                if number <= len(self._sleeps):
                    moment.happen()
        try:
            await sleeper[1].wait(timeout=None)
        finally:
            with self._lock:
                self._sleepers.remove(sleeper)

    @property
    def sleeps(self) -> list[float]:
        """The length of each `sleep`, in the order of the calls."""
        with self._lock:
            return list(self._sleeps)

    async def wait_for_sleep(
        self,
        number: int = 1,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,  # noqa: ASYNC109 - part of the interface, as in the provider's `wait_for_request`
    ) -> float:
        """Wait for the given call of `sleep`, counted from 1; return its length."""
        moment = Moment(f"sleep {number}")
        with self._lock:
            self._waiters.append((number, moment))
            if len(self._sleeps) >= number:
                moment.happen()
        await moment.wait(timeout)
        return self.sleeps[number - 1]
