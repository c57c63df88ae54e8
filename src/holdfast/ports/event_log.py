"""The event log: reading a run's events while it runs and afterwards."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from holdfast.core.events import Event


class EventLog(Protocol):
    """Live readers are served from memory, all others from the durable copy in the store.

    The writer of a run commits the events of a checkpoint (``Transaction.events``) before it publishes them. Streamed
    events it publishes first and commits soon after, in the same order; then it calls ``mark_durable``.
    """

    def open(self, run_id: str, after: int = 0) -> None:
        """Keep the run's events in memory from now on. Events up to ``after`` are in the past."""
        ...

    def publish(self, events: Sequence[Event]) -> None:
        """Show events of one run to its live readers. Never waits for a reader."""
        ...

    def mark_durable(self, run_id: str, seq: int) -> None:
        """Events up to this number are in the store now and may be dropped from memory."""
        ...

    def close(self, run_id: str) -> None:
        """No more events of the run come from this process. Its readers go on with the store: nobody needs to know here
        whether the run is over or goes on elsewhere."""
        ...

    def disconnect_readers(self) -> None:
        """The process stops soon: all readers end as if every run had been closed. Later readers get what is stored
        and end instead of waiting."""
        ...

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """Yield each event with ``seq > after`` once and in order, in batches of what is available, and wait for more.

        Ends after ``RunEnded``, or without it when this process stops. A slow reader does not slow the run. The run may
        be executed by this process, by another one, or by one after the other.
        NotFound if there is no such run."""
        ...
