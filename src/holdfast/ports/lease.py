"""The lease of this server: for how long it may execute its runs without hearing from the database."""

from typing import Protocol

from holdfast.core.servers import Claimant, ServerLoad


class Lease(Protocol):
    """A server registers under a new id and renews its lease with heartbeats. When a lease has expired by the clock of the
    database, other servers take its runs over, and the id is never used again. Near that time, counted by a clock of
    its own, the server itself stops its runs."""

    @property
    def claimant(self) -> Claimant | None:
        """This server as one that may claim runs, and execute those that it has claimed under this id; None while its
        lease is not valid. Costs no I/O: it is asked before each effect."""
        ...

    @property
    def server_id(self) -> str | None:
        """The id of this server; None before it has registered."""
        ...

    @property
    def load(self) -> ServerLoad:
        """What this server says about itself now. The database knows what it said with its last heartbeat."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this server does the periodic work of the deployment: the oldest one whose lease is valid and that is
        not stopping."""
        ...

    @property
    def is_exclusive(self) -> bool:
        """Whether no other server can use the database while this one runs."""
        ...

    @property
    def has_peers(self) -> bool:
        """Whether other servers may be alive: nobody else needs to be woken if not."""
        ...

    async def wait_until_lost(self) -> None:
        """Return when the lease is no longer valid."""
        ...

    async def register(self) -> None:
        """Register under a new id: at the start, and after the lease was lost. Releases the runs of servers that are known
        to be dead. Tries until the database answers."""
        ...
