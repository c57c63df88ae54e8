"""The connection for the heartbeats of a server, which share nothing with its other work: a pool that is busy, or a
transaction that waits for a lock, must not cost the lease."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from sqlalchemy import Connection, event

from holdfast.adapters.store.postgres import create_single_engine
from holdfast.adapters.store.servers import SqlServers
from holdfast.core.servers import ServerLoad
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Renewal


class HeartbeatConnection:
    """Used by one thread. ``timeout_seconds``: how long one heartbeat may take."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._engine = create_single_engine(url, timeout_seconds)
        event.listen(self._engine, "connect", self._keep_socket, insert=True)
        self._connection: Connection | None = None
        # A descriptor of our own for the same socket: libpq may close its own one at any time.
        self._socket: socket.socket | None = None

    def renew(self, server_id: str, lease_seconds: float, load: ServerLoad) -> Renewal | None:
        """Extend the lease; None if it has expired. StoreUnavailable if the database does not answer in time."""
        try:
            with self._limit_time():
                if self._connection is None:
                    self._connection = self._engine.connect()
                return SqlServers(self._connection, None).renew(server_id, lease_seconds, load)
        except StoreUnavailable:
            self._disconnect()
            raise

    def close(self) -> None:
        self._disconnect()
        self._engine.dispose()

    @contextmanager
    def _limit_time(self) -> Iterator[None]:
        """Break the connection off if the block takes longer: no timeout of libpq ends a statement whose answer does not
        come, and a connection that hangs for ever would cost every later lease."""
        is_done = threading.Event()

        def watch() -> None:
            # Again and again: the connection may have been made after the first time.
            while not is_done.wait(self._timeout_seconds):
                self._break_off()

        threading.Thread(target=watch, name="heartbeat-limit", daemon=True).start()
        try:
            yield
        finally:
            is_done.set()

    def _break_off(self) -> None:
        if (kept := self._socket) is not None:
            # The other thread may close it in this moment.
            with suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)

    def _keep_socket(self, connection: psycopg.Connection[Any], _: object) -> None:
        self._forget_socket()
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def _forget_socket(self) -> None:
        kept, self._socket = self._socket, None
        if kept is not None:
            kept.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
        self._forget_socket()
