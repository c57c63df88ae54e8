"""The servers of the deployment and their queue. Not in V1."""

from datetime import datetime

from msgspec import Struct

from holdfast.core.servers import Role


class Server(Struct, frozen=True, kw_only=True):
    """A server. One that died is listed for an hour."""

    id: str
    host: str
    pid: int
    version: str
    role: Role
    is_alive: bool
    # Whether it does the periodic work of the deployment.
    is_leader: bool
    # Whether it is the server that answers.
    is_this: bool
    # Whether it is stopping and takes no more runs.
    is_draining: bool
    # Whether it gets the wake-ups of other servers; otherwise it polls.
    is_notified: bool
    live_runs: int
    max_runs: int
    started_at: datetime
    heartbeat_at: datetime
    # When others may take its runs over; null: never, since no other server can use the database.
    lease_ends_at: datetime | None


class Queue(Struct, frozen=True, kw_only=True):
    """The runs that wait for a server or for their conversation."""

    waiting_runs: int
    oldest_seconds: float | None


class Deployment(Struct, frozen=True, kw_only=True):
    """The servers, the oldest first. All times are by the clock of the database, which shows ``now``."""

    now: datetime
    servers: list[Server]
    queue: Queue
