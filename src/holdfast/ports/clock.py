"""Time and chance: the two things that the core may not reach for itself."""

from datetime import datetime
from typing import Protocol

from holdfast.core.ids import Kind


class Clock(Protocol):
    def now(self) -> datetime:
        """The present, aware and in UTC."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long by this clock."""
        ...


class Ids(Protocol):
    def new_id(self, kind: Kind) -> str:
        """A new id ``<prefix>-<uuid4>``, never given before."""
        ...

    def new_otid(self) -> str:
        """A bare UUID for a message whose sender chose no offline threading id."""
        ...
