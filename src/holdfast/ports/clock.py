"""Time and random ids. The core gets both as arguments."""

from datetime import datetime
from typing import Protocol

from holdfast.core.ids import Kind


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time, timezone-aware and in UTC."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds that never go backwards. Only differences have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of this clock."""
        ...


class Ids(Protocol):
    def new_id(self, kind: Kind) -> str:
        """Return a new unique id: ``<prefix>-<uuid4>``."""
        ...

    def new_otid(self) -> str:
        """Return a new UUID for a message whose sender gave no offline threading id."""
        ...
