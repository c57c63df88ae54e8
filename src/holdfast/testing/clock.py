"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Both times move together, and only by `advance`.

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

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def monotonic(self) -> float:
        return self._elapsed_seconds

    def monotonic_ns(self) -> int:
        return round(self._elapsed_seconds * 1e9)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not go backwards")
        self._elapsed_seconds += seconds
