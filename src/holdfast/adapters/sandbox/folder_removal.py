"""Removes a folder of any depth and size, whatever its owner has forbidden in it.

Folders inside folders are moved to the top before they are emptied. So no path is long, nothing is recursive, and
three descriptors are enough. Nobody else may change the folder meanwhile. Imports only the standard library.
"""

import contextlib
import errno
import os
import stat
from itertools import count, islice
from pathlib import Path
from typing import Final

_BATCH: Final = 1000
"""How many entries are read at once: some file systems skip entries if a folder changes while it is read."""

_OPEN_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(path: str) -> bool:
    """Returns whether it is gone. What cannot be removed stays, such as a mounted file system or other users' files."""
    try:
        top = _open_folder(path)
    except OSError:
        return not os.path.lexists(path)
    try:
        _empty_top(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        Path(path).rmdir()
    return not os.path.lexists(path)


def _empty_top(top: int) -> None:
    numbers = count()
    has_progress = True
    while has_progress:
        has_progress = False
        for name, is_folder in _read_batch(top):
            if is_folder:
                _empty_folder(top, name, numbers)
            has_progress |= _remove_entry(top, name, is_folder=is_folder)


def _empty_folder(top: int, name: str, numbers: "count[int]") -> None:
    """Remove the files of a folder at the top, and move its folders to the top."""
    try:
        folder = _open_folder(name, top)
    except OSError:
        return
    try:
        has_progress = True
        while has_progress:
            has_progress = False
            for inner, is_folder in _read_batch(folder):
                has_progress |= _remove_entry(folder, inner, is_folder=is_folder) or (
                    is_folder and _move_up(folder, inner, top, numbers)
                )
    finally:
        os.close(folder)


def _open_folder(name: str, parent: int | None = None) -> int:
    """Open it so that its entries can be removed."""
    try:
        folder = os.open(name, _OPEN_FLAGS, dir_fd=parent)
    except PermissionError:
        _allow_access(name, parent)
        folder = os.open(name, _OPEN_FLAGS, dir_fd=parent)
    with contextlib.suppress(OSError):
        os.fchmod(folder, stat.S_IRWXU)
    return folder


def _read_batch(folder: int) -> list[tuple[str, bool]]:
    """Names, each with whether it is a folder."""
    try:
        with os.scandir(folder) as entries:
            return [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in islice(entries, _BATCH)
            ]
    except OSError:
        return []


def _remove_entry(folder: int, name: str, *, is_folder: bool) -> bool:
    try:
        if is_folder:
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _move_up(folder: int, name: str, top: int, numbers: "count[int]") -> bool:
    for number in numbers:
        try:
            _rename(folder, name, top, f".{number}")
        except OSError as error:
            # A file or a full folder has that name. (An empty folder is replaced.)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                return False
        else:
            break
    return True


def _rename(folder: int, name: str, top: int, new_name: str) -> None:
    try:
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:  # to move a folder is to write to it
        _allow_access(name, folder)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)


def _allow_access(name: str, parent: int | None) -> None:
    """The owner may have forbidden the use of a folder, and can undo that. Root never needs to, so no link that replaces
    the folder can lead it astray."""
    os.chmod(name, stat.S_IRWXU, dir_fd=parent)
