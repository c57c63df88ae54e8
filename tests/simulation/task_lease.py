"""The lease of a server among several, in virtual time: the real one, whose heartbeats are a task instead of a thread."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.simulation.disk import SteppedStore
from tests.simulation.hosts import Host

from holdfast.adapters.lease.heartbeat import HEARTBEATS_PER_LEASE, HeartbeatLease
from holdfast.core.servers import Server, ServerLoad
from holdfast.errors import BackendError
from holdfast.ports.store import Renewal

# Short, so that scenarios are: the rest of the system waits as long as it always does.
LEASE_SECONDS = 4.0


class TaskLease(HeartbeatLease):
    def __init__(
        self,
        store: SteppedStore,
        host: Host,
        new_server: Callable[[], Server],
        note_time: Callable[[datetime], None],
    ) -> None:
        connection: Any = None
        super().__init__(
            store,
            connection,
            new_server=new_server,
            lease_seconds=LEASE_SECONDS,
            read_load=ServerLoad,
            note_time=note_time,
            clock=asyncio.get_running_loop().time,
        )
        self._stepped = store
        self._host = host
        thread: Any = _HeartbeatTask(host, self._beat_on)
        self._thread = thread

    async def _beat_on(self) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(LEASE_SECONDS / HEARTBEATS_PER_LEASE)
            server = self._server
            if server is not None and self.is_valid:
                await self._renew_once(server)

    async def _renew_once(self, server: Server) -> None:
        sent_at = self._clock()
        try:
            renewal = await self._stepped.beat(
                lambda tx: tx.servers.renew(server.id, LEASE_SECONDS, ServerLoad())
            )
        except BackendError:
            return
        self._on_answer(server, renewal, sent_at)

    def _accept(self, renewal: Renewal, sent_at: float) -> None:
        if self._server is not None:
            self._host.server_id = self._server.id
        super()._accept(renewal, sent_at)


class _HeartbeatTask:
    """In the place of a thread."""

    def __init__(self, host: Host, beat: Callable[[], Any]) -> None:
        self._host = host
        self._beat = beat
        self._is_started = False

    def is_alive(self) -> bool:
        """Never: nobody needs to wait for its end."""
        return False

    def start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._host.create_task(self._beat(), "heartbeat")
