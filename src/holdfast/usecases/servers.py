"""The servers of the deployment and their queue, for people who look at them."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.servers import Server, find_leader
from holdfast.ports.services import Services
from holdfast.ports.store import QueueDepth, Transaction


class ListedServer(Struct, frozen=True, kw_only=True):
    """A server; ``is_this``: it is the one that answers."""

    server: Server
    is_alive: bool
    is_leader: bool
    is_this: bool


class Deployment(Struct, frozen=True, kw_only=True):
    """All servers, the oldest first, and the queue. All times are by the clock of the database: ``now``."""

    now: datetime
    servers: tuple[ListedServer, ...]
    queue: QueueDepth


async def load_deployment(services: Services) -> Deployment:
    def load(tx: Transaction) -> Deployment:
        now, found = tx.servers.now(), tx.servers.list()
        return Deployment(
            now=now, servers=_describe(services, found, now), queue=tx.queue.measure()
        )

    return await services.store.read(load)


def _describe(
    services: Services, found: Sequence[Server], now: datetime
) -> tuple[ListedServer, ...]:
    leader, this_id = find_leader(found, now), services.lease.server_id
    return tuple(
        ListedServer(
            server=_with_present_load(services, server, now) if server.id == this_id else server,
            is_alive=server.is_alive(now),
            is_leader=server is leader,
            is_this=server.id == this_id,
        )
        for server in found
    )


def _with_present_load(services: Services, this: Server, now: datetime) -> Server:
    """This server as it is now. One that has the database alone sends no heartbeats: its answer is one."""
    heartbeat_at = now if services.lease.is_exclusive else this.heartbeat_at
    return replace(this, load=services.lease.load, heartbeat_at=heartbeat_at)
