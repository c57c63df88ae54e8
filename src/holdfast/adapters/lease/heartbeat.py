"""The lease of a server that shares its database with others. A thread with its own connection renews it, so neither a
busy event loop nor a busy pool can lose it."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

from holdfast.adapters.lease.process import is_gone
from holdfast.adapters.store.heartbeat_connection import HeartbeatConnection
from holdfast.core.servers import Claimant, Server, ServerLoad
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError
from holdfast.ports.store import Renewal, Store, Transaction

log = logging.getLogger(__name__)

# Heartbeats per lease: several may be lost before the lease is.
HEARTBEATS_PER_LEASE: Final = 5
# The part of a lease after which the server stops its runs by itself. The rest is the time that it takes to stop them
# before others take them over.
OWN_PART: Final = 0.8
# How often the lease is looked at while somebody waits for its loss, at least: a machine that was suspended wakes up with
# timers that are late.
_LONGEST_WAIT_SECONDS: Final = 0.5
_REGISTER_RETRY_SECONDS: Final = 0.5


def read_boot_clock() -> float:
    """Seconds that also count while the machine is suspended, if it has such a clock."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)


class HeartbeatLease:
    """``new_server`` describes this server under a new id; ``read_load`` is called by the thread. ``note_time`` is told the
    time of the database."""

    def __init__(
        self,
        store: Store,
        connection: HeartbeatConnection,
        *,
        new_server: Callable[[], Server],
        lease_seconds: float,
        read_load: Callable[[], ServerLoad],
        note_time: Callable[[datetime], None],
        clock: Callable[[], float] = read_boot_clock,
    ) -> None:
        self._store = store
        self._connection = connection
        self._new_server = new_server
        self._lease_seconds = lease_seconds
        self._read_load = read_load
        self._note_time = note_time
        self._clock = clock
        self._server: Server | None = None
        # Under which this server is registered, was, or may be: the outcome of a registration may be unknown.
        self._own_ids: set[str] = set()
        self._renewal: Renewal | None = None
        self._valid_until = 0.0
        # The thread extends the lease only if nobody can have seen it end.
        self._extending = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    @property
    def claimant(self) -> Claimant | None:
        server = self._server
        if server is None or not self.is_valid:
            return None
        return Claimant(server.id, server.worker_id)

    @property
    def server_id(self) -> str | None:
        server = self._server
        return None if server is None else server.id

    @property
    def load(self) -> ServerLoad:
        return self._read_load()

    @property
    def is_valid(self) -> bool:
        with self._extending:
            return self._has_time_left()

    @property
    def is_leader(self) -> bool:
        return self.is_valid and self._renewal is not None and self._renewal.is_leader

    @property
    def is_exclusive(self) -> bool:
        return False

    @property
    def has_peers(self) -> bool:
        # Whoever does not know must assume it.
        return self._renewal is None or self._renewal.has_peers

    async def wait_until_lost(self) -> None:
        # No event: time passes, also while the machine is suspended.
        while self.is_valid:
            remaining = max(self._valid_until - self._clock(), 0.0)
            await asyncio.sleep(min(remaining, _LONGEST_WAIT_SECONDS))

    async def register(self) -> None:
        while True:
            server, sent_at = self._new_server(), self._clock()
            self._own_ids.add(server.id)
            try:
                # To its end, even if the server stops meanwhile: one that is registered must end its lease.
                work = partial(self._register, server=server)
                server, renewal, released = await finish(self._store.write(work))
            except BackendError:
                log.exception("store.unreachable", extra={"while": "registering this server"})
                await asyncio.sleep(_REGISTER_RETRY_SECONDS)
                continue
            self._server = server
            self._accept(renewal, sent_at)
            log.info("server.registered", extra={"server_id": server.id, "released": released})
            if not self._thread.is_alive():
                self._thread.start()
            return

    def _register(self, tx: Transaction, server: Server) -> tuple[Server, Renewal, int]:
        for other in tx.servers.list():
            if other.is_alive(tx.servers.now()) and self._is_dead(other):
                tx.servers.expire(other.id)
        server = tx.servers.register(server, self._lease_seconds)
        renewal = tx.servers.renew(server.id, self._lease_seconds, self._read_load())
        if renewal is None:
            raise BackendError("The lease of this server expired while it was registered.")
        return server, renewal, tx.queue.release_expired()

    def _is_dead(self, other: Server) -> bool:
        """Whether nobody executes the runs of that server any more: its process is gone, or it is this one under an
        earlier id."""
        return is_gone(other.process) or other.id in self._own_ids

    async def aclose(self) -> None:
        """End the lease, so that others need not wait until it expires."""
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, self._lease_seconds)
        server, self._server, self._valid_until = self._server, None, 0.0
        if server is not None:
            with suppress(BackendError):
                await self._store.write(lambda tx: tx.servers.expire(server.id))

    def _beat(self) -> None:
        while not self._stopping.wait(self._lease_seconds / HEARTBEATS_PER_LEASE):
            server = self._server
            if server is not None and self.is_valid:
                self._renew(server)
        self._connection.close()

    def _renew(self, server: Server) -> None:
        sent_at = self._clock()
        try:
            renewal = self._connection.renew(server.id, self._lease_seconds, self._read_load())
        except BackendError:
            log.exception("store.unreachable", extra={"while": "renewing the lease"})
            return
        except Exception:
            # The boundary of a thread that must not end: it cannot be started again.
            log.exception("heartbeat.failed")
            return
        self._on_answer(server, renewal, sent_at)

    def _on_answer(self, server: Server, renewal: Renewal | None, sent_at: float) -> None:
        """Extend the lease, unless the database says that it has ended. One that has ended meanwhile by the clock of this
        server stays so, whatever the database says: runs were stopped."""
        with self._extending:
            if self._server is not server or not self._has_time_left():
                return
            if renewal is None:
                self._valid_until = 0.0
            else:
                self._accept(renewal, sent_at)

    def _has_time_left(self) -> bool:
        return self._clock() < self._valid_until

    def _accept(self, renewal: Renewal, sent_at: float) -> None:
        """The lease counts from before the heartbeat was sent: the database counts from when it got it."""
        self._renewal = renewal
        self._valid_until = sent_at + self._lease_seconds * OWN_PART
        self._note_time(renewal.now)
