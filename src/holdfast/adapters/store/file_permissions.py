"""File permissions: only the server's own user may read the home folder and the files of a SQLite store."""

import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import CannotStart

log = logging.getLogger(__name__)

# What groups and other users may do.
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FOLDER_MODE: Final = stat.S_IRWXU
_FILE_MODE: Final = stat.S_IRUSR | stat.S_IWUSR


def make_home(home: Path) -> None:
    """Create the home folder, or restrict an existing one to its owner. CannotStart if it cannot be written."""
    try:
        make_private_folder(home)
        # Permission bits do not show full disks and read-only file systems.
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        raise CannotStart(
            f"Cannot use {home} as the home folder: {error.strerror or error}. Let this user write it, or choose "
            "another folder with --home or HOLDFAST_HOME."
        ) from error
    restrict_to_owner(home)


def make_private_folder(path: Path) -> None:
    """Create the folder and its parents. An existing folder stays as it is."""
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create the file empty if it does not exist, and restrict it to its owner."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE))
    restrict_to_owner(path)


def restrict_to_owner(path: Path) -> None:
    """Take away the permissions of groups and other users; log a warning if this process may not do so."""
    if not is_exposed(path):
        return
    with suppress(OSError):
        if can_restrict(path):
            path.chmod(_mode(path) & ~_OTHERS)
            return
    log.warning("files.exposed", extra={"path": str(path), "mode": f"{_mode(path):04o}"})


def is_exposed(path: Path) -> bool:
    """Whether groups or other users have any permission on the file or folder. False if it does not exist or cannot
    be looked at."""
    return is_visible(path) and bool(_mode(path) & _OTHERS)


def is_visible(path: Path) -> bool:
    """Whether the file or folder exists and this process may look at it."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def can_restrict(path: Path) -> bool:
    """Whether this process may change the permissions."""
    return path.stat().st_uid == os.geteuid() and not is_shared_folder(path)


def is_shared_folder(path: Path) -> bool:
    """Whether it is a folder such as /tmp, in which all users have files."""
    return bool(path.stat().st_mode & stat.S_ISVTX)


def sqlite_files(path: Path) -> Iterator[Path]:
    """Yield every file that may belong to the SQLite store: the database, its log, its lock and its backups."""
    for suffix in ("", "-wal", "-shm", ".lock"):
        yield path.with_name(f"{path.name}{suffix}")
    with suppress(OSError):
        files = sorted(path.parent.iterdir())
        yield from (file for file in files if file.name.startswith(f"{path.name}.before-"))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
