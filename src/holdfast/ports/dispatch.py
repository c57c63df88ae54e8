"""Handing queued runs to workers. The store is the truth; a dispatch only says where to look."""

from typing import Protocol

from msgspec import Struct


class Ticket(Struct, frozen=True):
    """A queued run and the thread whose turn it waits for."""

    run_id: str
    thread_id: str


class Dispatch(Protocol):
    def submit(self, ticket: Ticket) -> None:
        """Offer a queued run. Tickets of one thread are taken in the order of submission, one at a time. A run that is known already is
        not offered twice."""
        ...

    async def take(self) -> Ticket:
        """The next ticket whose thread is free; it holds the thread until ``release``."""
        ...

    def release(self, ticket: Ticket) -> None:
        """The run of this ticket no longer needs its thread."""
        ...

    def count_waiting(self) -> int:
        """How many tickets were submitted here and not taken yet. May be asked from any thread."""
        ...

    def run_holds_thread(self, run_id: str) -> bool:
        """Whether the run has had its turn here and was not released yet."""
        ...

    async def wait_for_turn(self, run_id: str) -> None:
        """Return once the run no longer waits for its thread."""
        ...

    def withdraw(self, run_id: str) -> str | None:
        """Forget a ticket that was not taken yet; the run that held it up, if that is known."""
        ...
