"""A lock that allows one server per SQLite file. The kernel releases it when the process ends, however that happens."""

import fcntl
import os
from pathlib import Path

from holdfast.errors import HomeInUse


def lock_owner(store: Path) -> str | None:
    """Return the id of the process that uses the store now; None if there is none. Takes the lock for an instant and
    changes nothing."""
    path = _lock_path(store)
    if not path.exists():
        return None
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(32).strip() or "unknown"
    return None


def _lock_path(store: Path) -> Path:
    return store.with_name(f"{store.name}.lock")


class FileLock:
    """Held from construction until ``release``. HomeInUse if another process holds it."""

    def __init__(self, store: Path) -> None:
        path = _lock_path(store)
        # Opened without truncating: the process id in it is needed for the message below.
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = self._file.read(32).strip() or "unknown"
            self._file.close()
            raise HomeInUse(
                f"Another Holdfast server (process {owner}) uses {store}, and an SQLite file is for one "
                "server only. Stop it first, or give this one another home (HOLDFAST_HOME). Several "
                "servers can share a PostgreSQL database (HOLDFAST_DATABASE_URL)."
            ) from error
        self._file.truncate()
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Release the lock. The file stays: if it were deleted, two servers could each lock a file of that name."""
        self._file.close()
