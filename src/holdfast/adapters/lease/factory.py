"""Opening the lease that suits the database."""

import socket
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.adapters.lease.exclusive import ExclusiveLease
from holdfast.adapters.lease.process import identify_process
from holdfast.core.servers import Role, Server, ServerLoad
from holdfast.ports.store import Store

if TYPE_CHECKING:
    from holdfast.adapters.lease.heartbeat import HeartbeatLease

# Replaced by the time of the database when the server registers.
_UNKNOWN_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def open_lease(
    store: Store,
    database_url: str,
    *,
    role: Role,
    max_runs: int,
    lease_seconds: float,
    read_load: Callable[[], ServerLoad],
    note_time: Callable[[datetime], None],
) -> "ExclusiveLease | HeartbeatLease":
    """Create the lease of this server. It is not valid before ``register``."""
    process = identify_process()

    def new_server() -> Server:
        return Server(
            id=f"server-{uuid.uuid4()}",
            host=socket.gethostname(),
            process=process,
            version=__version__,
            role=role,
            max_runs=max_runs,
            started_at=_UNKNOWN_TIME,
            heartbeat_at=_UNKNOWN_TIME,
        )

    if database_url.startswith("sqlite:"):
        return ExclusiveLease(store, new_server(), read_load=read_load)
    # Imported here because the driver takes long to load and most servers use SQLite.
    from holdfast.adapters.lease.heartbeat import (  # noqa: PLC0415 - see above
        HEARTBEATS_PER_LEASE,
        HeartbeatLease,
    )
    from holdfast.adapters.store.heartbeat_connection import (  # noqa: PLC0415 - see above
        HeartbeatConnection,
    )

    return HeartbeatLease(
        store,
        HeartbeatConnection(database_url, lease_seconds / HEARTBEATS_PER_LEASE),
        new_server=new_server,
        lease_seconds=lease_seconds,
        read_load=read_load,
        note_time=note_time,
    )
