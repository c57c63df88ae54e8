"""The connection for the heartbeats of a server, which share nothing with its other work: a pool that is busy, or a
transaction that waits for a lock, must not cost the lease."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Connection, event

from holdfast.adapters.store.postgres import create_single_engine
from holdfast.adapters.store.servers import SqlServers
from holdfast.core.servers import ServerLoad
from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Renewal

_T = TypeVar("_T")


class HeartbeatConnection:
    """Used by one thread. ``timeout_seconds``: how long one heartbeat may take."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._deadline = 0.0
        self._engine = create_single_engine(url, timeout_seconds)
        event.listen(self._engine, "do_connect", self._connect)
        self._connection: Connection | None = None

    def renew(self, server_id: str, lease_seconds: float, load: ServerLoad) -> Renewal | None:
        """Extend the lease; None if it has expired. StoreUnavailable if the database does not answer in time."""
        self._set_deadline()
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

    def _connect(
        self, _dialect: object, _record: object, args: Any, options: Any
    ) -> "_LimitedConnection":
        connection = _LimitedConnection.connect(*args, **options)
        connection.is_late = self._is_late
        # Connecting has a time limit of its own, which may be longer.
        self._set_deadline()
        return connection

    def _set_deadline(self) -> None:
        self._deadline = time.monotonic() + self._timeout_seconds

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None


class _LimitedConnection(psycopg.Connection[Any]):
    """Closes itself when it is late: no timeout of libpq ends a statement whose answer does not come, and a connection that
    hangs for ever would cost every later lease."""

    is_late: Callable[[], bool]

    def wait(self, gen: PQGen[_T], *args: Any, **options: Any) -> _T:
        return super().wait(self._limit_time(gen), *args, **options)

    def _limit_time(self, gen: PQGen[_T]) -> PQGen[_T]:
        """The same generator. While there is no answer, psycopg resumes it every tenth of a second."""
        try:
            awaited = next(gen)
            while True:
                # What has arrived counts, even if it is late: this process may have been paused.
                awaited = gen.send((yield awaited))
                if self.is_late():
                    self.close()
                    raise psycopg.OperationalError("The database has not answered in time.")
        except StopIteration as end:
            answer: _T = end.value
            return answer
