"""A clock that a test can set forward."""

from datetime import datetime, timedelta

from holdfast.adapters.clock import SystemClock


class MovableClock(SystemClock):
    """The machine's clock plus an offset."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)
