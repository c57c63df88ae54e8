"""Servers: the processes that share one database. Each has a lease on the runs that it executes."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

# How often it is checked who the leader is. If the leader dies, another server takes over so much after its lease.
LEADER_POLL_SECONDS: Final = 0.5
# How often the leader looks for runs of dead servers.
TAKEOVER_SECONDS: Final = 1.0


class Role(StrEnum):
    """What a server does: answer requests, execute runs, or both."""

    ALL = "all"
    API = "api"
    WORKER = "worker"


class ServerProcess(Struct, frozen=True, kw_only=True):
    """The process of a server. ``namespace`` says where its number means something: the boot of a machine and the process
    namespace; None if that is not known."""

    pid: int
    namespace: str | None = None
    # When the process was started, in ticks since the boot: a number may be given to another process later.
    started_at_tick: int | None = None


class ServerLoad(Struct, frozen=True, kw_only=True):
    """What a server says about itself with each heartbeat."""

    live_runs: int = 0
    # Whether it gets the wake-ups of other servers; otherwise it polls.
    is_notified: bool = True
    # Whether it is stopping and takes no more runs.
    is_draining: bool = False


class Server(Struct, frozen=True, kw_only=True):
    """A server as the database knows it. All times are by the clock of the database."""

    id: str
    # The machine's name, for people.
    host: str
    process: ServerProcess
    version: str
    role: Role
    max_runs: int
    started_at: datetime
    heartbeat_at: datetime
    # When others may take its runs over; None: never, since no other server can use the database.
    lease_ends_at: datetime | None = None
    # Its number among the workers of the job queue, if the database has one.
    worker_id: int | None = None
    load: ServerLoad = ServerLoad()

    def is_alive(self, now: datetime) -> bool:
        return self.lease_ends_at is None or self.lease_ends_at > now

    @property
    def executes_runs(self) -> bool:
        """Whether it takes runs from the queue while it is alive."""
        return self.role is not Role.API and not self.load.is_draining


def find_leader(servers: Iterable[Server], now: datetime) -> Server | None:
    """Return the server that does the periodic work of the deployment: the oldest that is alive, and not stopping if
    another one is not."""
    alive = (server for server in servers if server.is_alive(now))
    return min(
        alive, key=lambda item: (item.load.is_draining, item.started_at, item.id), default=None
    )


class Claimant(Struct, frozen=True):
    """A server that claims a run."""

    server_id: str
    worker_id: int | None = None


class Claim(Struct, frozen=True):
    """A run that a server has claimed. Writes of the run must carry ``fence``: it grows with each claim, so those of an
    earlier claim are refused."""

    run_id: str
    thread_id: str
    fence: int
    # The highest event number that a client may have received.
    last_seq: int = 0
    # Whether another server had begun the run.
    is_recovery: bool = False
