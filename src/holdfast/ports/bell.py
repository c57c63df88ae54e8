"""Waking up whoever waits. A bell carries no data: who is woken looks into the store."""

from typing import Protocol

# Rung when a cancel was put on record.
CANCELS = "cancels"
# Rung when a run begins to wait for a person, but not for ever.
DEADLINES = "deadlines"
# Rung when a callback is due, or there is room to deliver one.
CALLBACKS = "callbacks"


class Bell(Protocol):
    def ring(self, topic: str) -> None:
        """Wake everybody who waits for the topic. A ring that nobody waits for is kept, once, for the
        next who does, so that no wake-up falls between a look and a wait."""
        ...

    async def wait(self, topic: str) -> None:
        """Return at the next ring, or at once if one was kept."""
        ...
