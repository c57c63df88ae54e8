"""What connects this server with the others of its deployment: the bell, the lease, and its share of the queue."""

from contextlib import AsyncExitStack

from holdfast.adapters.bell.factory import open_bell
from holdfast.adapters.clock import SystemClock
from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.lease.factory import open_lease
from holdfast.config import Settings
from holdfast.core.servers import Role, ServerLoad
from holdfast.engine.worker import Worker
from holdfast.ports.bell import Bell
from holdfast.ports.lease import Lease
from holdfast.ports.store import Store
from holdfast.ports.telemetry import Telemetry


class LoadReader:
    """Reads what this server says about itself with its heartbeats, which begin before there is a worker."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.worker: Worker | None = None

    def read(self) -> ServerLoad:
        worker = self.worker
        return ServerLoad(
            live_runs=worker.live_count if worker else 0,
            is_notified=self._bell.is_connected,
            is_draining=worker is not None and worker.is_draining,
        )


async def join_deployment(
    settings: Settings, stack: AsyncExitStack, store: Store, clock: SystemClock
) -> tuple[Bell, Lease, LoadReader]:
    bell = await open_bell(
        settings.database_url,
        listen_url=settings.listen_url,
        has_peers=lambda: lease.has_peers,
    )
    stack.push_async_callback(bell.aclose)
    load_reader = LoadReader(bell)
    lease = open_lease(
        store,
        settings.database_url,
        role=settings.role,
        max_runs=settings.limits.max_runs,
        lease_seconds=settings.lease_seconds,
        read_load=load_reader.read,
        note_time=clock.compare,
    )
    stack.push_async_callback(lease.aclose)
    return bell, lease, load_reader


def build_dispatch(
    settings: Settings, store: Store, bell: Bell, lease: Lease, telemetry: Telemetry
) -> QueueDispatch:
    max_runs = 0 if settings.role is Role.API else settings.limits.max_runs
    return QueueDispatch(store, bell, lease, telemetry, max_runs=max_runs)
