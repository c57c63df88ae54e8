"""The queue of runs. A run is in it from ``Runs.add`` until it ends or is deleted: both are one transaction, so there is
no run without its place in the queue, and no place without its run."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from holdfast.core.servers import Claim, Claimant


class QueueDepth(Struct, frozen=True):
    """How many runs wait for a server or for their thread, and since when the oldest of them does."""

    waiting: int = 0
    oldest_at: datetime | None = None

    def oldest_seconds(self, now: datetime) -> float | None:
        """How long the oldest of them has waited; None if none waits. Its time is that of the server which stored it,
        whose clock may be a little ahead."""
        if self.oldest_at is None:
            return None
        return max((now - self.oldest_at).total_seconds(), 0.0)


class Queue(Protocol):
    """Runs of one thread are claimed one at a time, in the order in which they were stored. A run that was released comes
    before those that were stored after it, and runs that were begun before all others."""

    def claim_next(self, claimant: Claimant) -> Claim | None:
        """Claim the first run whose thread is free; None if there is none. Raises the run's fence."""
        ...

    def list_claims(self, server_id: str) -> Sequence[Claim]:
        """Return the claims of the server whose runs have not ended."""
        ...

    def is_empty(self) -> bool:
        """Whether no run waits to be claimed, be its thread free or not."""
        ...

    def measure(self) -> QueueDepth:
        """Return how many runs wait to be claimed."""
        ...

    def find_holder(self, thread_id: str) -> str | None:
        """Return the id of the claimed run of the thread, for which the others wait; None if there is none."""
        ...

    def release(self, server_id: str, *, keep: Collection[str] = ()) -> int:
        """Put the unfinished runs of a server back into the queue, but those to keep, and return how many they were.
        Raises their fences: the server can no longer write them."""
        ...

    def release_expired(self) -> int:
        """Do so for every server whose lease has expired, and for runs whose server is unknown."""
        ...
