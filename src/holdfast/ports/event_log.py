"""Reading a run while it happens and afterwards."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from holdfast.core.events import Event


class EventLog(Protocol):
    """Live readers are served from memory, all others from the store's durable copy.

    The writer commits the events of a checkpoint (``Transaction.events``) before it publishes them. What it
    publishes first, it commits in the same order soon after, and says so by ``settle``.
    """

    def open(self, run_id: str, after: int = 0) -> None:
        """Keep the run's events in memory from now on; those up to ``after`` happened before."""
        ...

    def publish(self, events: Sequence[Event]) -> None:
        """Show events of one run to its live readers. Never waits for a reader."""
        ...

    def mark_durable(self, run_id: str, seq: int) -> None:
        """Everything up to this number is durable by now, so it need not be kept in memory."""
        ...

    def close(self, run_id: str) -> None:
        """No more events will come from this process: its readers are let go."""
        ...

    def disconnect_readers(self) -> None:
        """The process ends soon: all readers are let go, as if every run had been closed, and so are those who
        still come and would have to wait."""
        ...

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """Each event with ``seq > after``, once and in order, in batches of what is there already, waiting
        for those to come. A slow reader costs nothing but its place. Ends after
        ``RunEnded``, or without it when this process lets go of the run. NotFound if there is no such run."""
        ...
