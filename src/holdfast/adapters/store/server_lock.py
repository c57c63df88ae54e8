"""A lock that allows one server per PostgreSQL database, because recovery at the start assumes that no other one runs.

The lock belongs to a connection that does nothing else, so it is released when the process ends, however that happens.
"""

import threading
import time
from typing import Final

from sqlalchemy import Connection, Engine

from holdfast.errors import HomeInUse, StoreUnavailable

# An arbitrary constant; advisory locks are per database.
_LOCK_ID: Final = 0x686F6C64

# The database needs a moment to notice that the previous server was killed.
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.1


class ServerLock:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._connection: Connection | None = None

    def acquire(self) -> None:
        """Acquire the lock, or again if its connection was lost. HomeInUse if another server has it."""
        with self._mutex:
            if self._connection is not None and not _is_alive(self._connection):
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = self._connect_and_lock()

    def release(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self._engine.dispose()

    def _connect_and_lock(self) -> Connection:
        connection = self._engine.connect()
        for _ in range(_TRIES):
            if connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_LOCK_ID})").scalar():
                return connection
            time.sleep(_PAUSE_SECONDS)
        connection.close()
        where = self._engine.url.render_as_string(hide_password=True)
        raise HomeInUse(
            f"Another Holdfast server uses the database {where}. Stop it first, or give this one "
            "another database (HOLDFAST_DATABASE_URL)."
        )


def _is_alive(connection: Connection) -> bool:
    try:
        connection.exec_driver_sql("SELECT 1")
    except StoreUnavailable:
        return False
    return True
