"""Which connections owe the rest of a request, how long they may, and how many at once. Knows no protocol."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, Protocol

from holdfast.core.addresses import IPNetwork

# The customer of a network provider has at least a /64 of IPv6 addresses.
_IPV6_PREFIX: Final = 64
# How long a refused client may still send what it had begun, so that it reads the refusal.
LINGER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What the server grants to connections, whoever they come from."""

    # Connections at once.
    connections: int = 10_000
    # Connections without a complete request header: all, and those of one address.
    pending: int = 1_000
    pending_per_address: int = 100
    # The header of one request with its request line, and the trailers of its body.
    header_bytes: int = 64 * 1024
    header_count: int = 200
    # How long a header may take, from the start of the connection or the first byte of the next request.
    header_seconds: float = 10.0
    # How long a body may take, from the end of its header.
    body_seconds: float = 300.0


class Connection(Protocol):
    address: str

    def end_late_request(self) -> None:
        """The rest of the request did not come in time."""

    def drop(self) -> None:
        """Close at once."""


class PendingRequests:
    """The connections whose request is not complete, the oldest first.

    ``sweep`` is called about once a second. It acts only on connections that an earlier sweep saw: after a stall of the
    loop, what a client has sent long ago is read first.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        now: Callable[[], float],
        unlimited_addresses: Iterable[IPNetwork] = (),
    ) -> None:
        self.limits = limits
        self._now = now
        self._unlimited = tuple(unlimited_addresses)
        # When each header began.
        self._headers: dict[Connection, float] = {}
        # When each body must be complete.
        self._bodies: dict[Connection, float] = {}
        self._swept_at = float("-inf")

    def await_header(self, connection: Connection) -> None:
        self._headers.setdefault(connection, self._now())

    def end_header(self, connection: Connection) -> None:
        self._headers.pop(connection, None)

    def await_body(self, connection: Connection) -> None:
        if connection not in self._bodies:
            self._bodies[connection] = self._now() + self.limits.body_seconds

    def hurry_body(self, connection: Connection) -> None:
        """The request has been answered, so nobody needs the rest of its body."""
        self._set_deadline(connection, self.limits.header_seconds)

    def linger(self, connection: Connection) -> None:
        self.end_header(connection)
        self._set_deadline(connection, LINGER_SECONDS)

    def discard(self, connection: Connection) -> None:
        self._headers.pop(connection, None)
        self._bodies.pop(connection, None)

    def drop_oldest(self) -> bool:
        """Make room for a new connection; False if every connection has sent its request."""
        oldest = next(iter(self._headers), None) or next(iter(self._bodies), None)
        if oldest is None:
            return False
        self.discard(oldest)
        oldest.drop()
        return True

    def sweep(self) -> None:
        now, seen_at = self._now(), self._swept_at
        self._swept_at = now
        slow = [connection for connection, began_at in self._headers.items() if began_at < seen_at]
        for connection in self._too_many(slow):
            self.discard(connection)
            connection.drop()
        began_by = min(now - self.limits.header_seconds, seen_at)
        late = [connection for connection, began_at in self._headers.items() if began_at < began_by]
        late += [connection for connection, end_at in self._bodies.items() if end_at < seen_at]
        for connection in late:
            self.discard(connection)
            connection.end_late_request()

    def _too_many(self, slow: list[Connection]) -> list[Connection]:
        """The oldest ones beyond the limits. A trusted proxy has many clients, so only the limit for all holds for it."""
        groups = {connection: self._group(connection.address) for connection in slow}
        counts = Counter(group for group in groups.values() if group is not None)
        beyond = []
        for connection in slow:
            group = groups[connection]
            if group is not None and counts[group] > self.limits.pending_per_address:
                counts[group] -= 1
                beyond.append(connection)
        dropped = set(beyond)
        kept = [connection for connection in slow if connection not in dropped]
        return beyond + kept[: max(0, len(kept) - self.limits.pending)]

    def _group(self, address: str) -> str | None:
        """Whose connections are counted together; None if they are not."""
        try:
            found = ip_address(address)
        except ValueError:
            return address
        if found.version == 6 and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if any(found in network for network in self._unlimited):
            return None
        return str(ip_network((found, _IPV6_PREFIX), strict=False) if found.version == 6 else found)

    def _set_deadline(self, connection: Connection, seconds: float) -> None:
        deadline = self._now() + seconds
        self._bodies[connection] = min(self._bodies.get(connection, deadline), deadline)
