"""The queue from which workers take runs. The store is authoritative; a dispatch only says which run to load next."""

from typing import Protocol

from msgspec import Struct


class Ticket(Struct, frozen=True):
    """A queued run and its thread. Of the runs of one thread only one is executed at a time."""

    run_id: str
    thread_id: str


class Dispatch(Protocol):
    def submit(self, ticket: Ticket) -> None:
        """Queue a run. Tickets of one thread are taken in the order of submission, one at a time. A run that is queued
        or taken already is ignored."""
        ...

    async def take(self) -> Ticket:
        """Wait for a ticket whose thread is free and return it. It holds the thread until ``release``."""
        ...

    def release(self, ticket: Ticket) -> None:
        """Free the thread that this ticket holds."""
        ...

    def count_waiting(self) -> int:
        """Return how many tickets were submitted here and are not taken yet. May be called from any thread."""
        ...

    def run_holds_thread(self, run_id: str) -> bool:
        """Whether the run got its thread here and has not been released yet."""
        ...

    async def wait_for_turn(self, run_id: str) -> None:
        """Return when the run no longer waits for its thread."""
        ...

    def withdraw(self, run_id: str) -> str | None:
        """Remove a ticket that waits for its thread. Return the id of the run that holds the thread; None if there was
        no such ticket."""
        ...
