"""The servers that share the database. Times are by the clock of the database, so the clocks of servers do not matter."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from holdfast.core.servers import Server, ServerLoad


class Renewal(Struct, frozen=True):
    """What a heartbeat finds out."""

    now: datetime
    is_leader: bool
    has_peers: bool


class Servers(Protocol):
    def now(self) -> datetime:
        """Return the time by the clock of the database."""
        ...

    def register(self, server: Server, lease_seconds: float | None) -> Server:
        """Store a new server with a lease from now on, and return it with its times and its worker number. None: its
        lease never expires."""
        ...

    def renew(self, server_id: str, lease_seconds: float, load: ServerLoad) -> Renewal | None:
        """Extend the lease from now on. None if it has expired: it cannot be extended any more."""
        ...

    def expire(self, server_id: str) -> None:
        """End the lease now: the process of the server is gone, or has stopped its runs."""
        ...

    def find(self, server_id: str) -> Server | None:
        """Return the server; None if it is unknown, or long dead."""
        ...

    def list(self) -> Sequence[Server]:
        """Return all servers, the oldest first, also those that died a short time ago."""
        ...

    def delete_dead(self, before: datetime) -> int:
        """Delete the servers whose lease ended before this time, and return how many they were."""
        ...
