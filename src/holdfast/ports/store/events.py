"""The durable copy of the runs' events. Live readers use the event log (``ports.event_log``)."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.events import Event


class Events(Protocol):
    def append(self, events: Sequence[Event]) -> None:
        """Store events of one run, in the order of their numbers."""
        ...

    def list_after(self, run_id: str, seq: int, limit: int) -> Sequence[Event]:
        """Return up to ``limit`` events of the run with a number above ``seq``, in order."""
        ...
