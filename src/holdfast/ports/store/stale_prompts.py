"""Threads whose system message shows an old state of the agent's folders and files, or of its blocks."""

from collections.abc import Collection
from typing import Protocol


class StalePrompts(Protocol):
    """``Runs.lock`` tells whether the thread of the run is among them."""

    def mark(self, agent_ids: Collection[str], *, except_threads: Collection[str] = ()) -> None:
        """Mark all threads of these agents but those in ``except_threads``. A transaction that takes one of them at the same time waits for this one, and
        sees what it has changed."""
        ...

    def is_stale(self, thread_id: str) -> bool:
        """Return whether the thread is marked."""
        ...

    def take(self, thread_id: str) -> bool:
        """Remove the mark of the thread; return whether it had one. Whoever takes it compiles the system message
        afterwards in the same transaction: what is read before may be old."""
        ...
