"""The connection for the heartbeats of a server, which share nothing with its other work: a pool that is busy, or a
transaction that waits for a lock, must not cost the lease."""

from sqlalchemy import Connection

from holdfast.adapters.store.postgres import create_single_engine
from holdfast.adapters.store.servers import SqlServers
from holdfast.core.servers import ServerLoad
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Renewal


class HeartbeatConnection:
    """Used by one thread. ``timeout_seconds``: how long one heartbeat may take."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._engine = create_single_engine(url, timeout_seconds)
        self._connection: Connection | None = None

    def renew(self, server_id: str, lease_seconds: float, load: ServerLoad) -> Renewal | None:
        """Extend the lease; None if it has expired. StoreUnavailable if the database does not answer in time."""
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            return SqlServers(self._connection, None).renew(server_id, lease_seconds, load)
        except StoreUnavailable:
            self._disconnect()
            raise

    def close(self) -> None:
        self._disconnect()
        self._engine.dispose()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
