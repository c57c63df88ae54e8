"""Wake-ups between tasks. A bell carries no data: the task that is woken reads the store."""

from typing import Protocol

# Rung when a cancellation was stored.
CANCELS = "cancels"
# Rung when a run starts to wait for a person, with a deadline.
DEADLINES = "deadlines"
# Rung when a callback is due, or when another one may be delivered.
CALLBACKS = "callbacks"


class Bell(Protocol):
    def ring(self, topic: str) -> None:
        """Wake all tasks that wait for the topic. If none waits, the next ``wait`` returns at once; several such rings
        count as one. So no wake-up is lost between reading the store and waiting."""
        ...

    async def wait(self, topic: str) -> None:
        """Return at the next ring, or at once after a ring for which no task waited."""
        ...
