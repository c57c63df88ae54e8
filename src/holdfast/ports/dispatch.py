"""This server's share of the queue. The queue itself is in the store (``Transaction.queue``): a dispatch only waits for
it, and hands claimed runs to the worker of this process."""

from typing import Protocol

from holdfast.core.runs import Run
from holdfast.core.servers import Claim, Claimant


class Dispatch(Protocol):
    def start(self) -> None:
        """Claim runs from now on: there is a worker."""
        ...

    def claimant(self, *, is_nested: bool = False) -> Claimant | None:
        """Who claims a run in the transaction that stores it: this server, if it executes runs and has room; else None,
        and the run waits in the queue for any server. A nested run needs no room: another run waits for it, so it
        would wait for ever for the room that the other takes up."""
        ...

    def submit(self, run: Run) -> bool:
        """A new run is stored. If this server has claimed it, it starts now; else the queue is looked through soon.
        Return whether this server executes it."""
        ...

    async def take(self) -> Claim:
        """Wait for a run that this server has claimed and return it. It takes up room until ``release``."""
        ...

    def release(self, claim: Claim) -> None:
        """The run of this claim is no longer executed here. Another one of its thread may be next."""
        ...

    async def wait_for_turn(self, run: Run) -> None:
        """Return when the run no longer waits for its thread, or when this server stops."""
        ...

    def stop(self) -> None:
        """Claim no more runs, and end ``wait_for_turn``. ``take`` does not return any more."""
        ...
