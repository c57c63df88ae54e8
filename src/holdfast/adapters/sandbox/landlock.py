"""Restricts a tool by Landlock: hides Holdfast's own files and allows writing in few places (Linux 5.13 and newer), and
refuses signals to other processes (Linux 6.12 and newer). The process must have dropped its privileges before.

Runs in the sandbox's own processes; imports only the standard library.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final

# Landlock's system calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
# Other processes cannot be signalled, nor reached by the name of an abstract UNIX socket.
_SCOPES: Final = 1 | 2
_SCOPES_ABI: Final = 6
# How many kinds of access the kernel knows, by the version of its interface; a version adds to those before.
_ACCESS_COUNTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_MAX_ACCESS_COUNT: Final = 16
# Execute, write, read, truncate, ioctl: the kinds of access for files; the others are for folders.
_FILE_ACCESS: Final = 1 | 2 | 4 | 1 << 14 | 1 << 15
# Execute, read, list.
_READ_ACCESS: Final = 1 | 4 | 8
# Programs expect to be able to write there. POSIX semaphores and shared memory are files in /dev/shm.
_WRITABLE_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm")  # noqa: S108 - see above

_libc = ctypes.CDLL(None, use_errno=True)


def abi_version() -> int:
    """The version of the kernel's interface; 0 if it has no Landlock."""
    if sys.platform != "linux":
        return 0
    found = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    return max(0, int(found))


def is_supported() -> bool:
    return abi_version() > 0


def restrict_signals() -> bool:
    """From now on this process, and all that it starts, can send signals only to each other. Returns whether the kernel
    supports it. The seccomp filter cannot do this: it does not know the thread ids of other processes."""
    return abi_version() >= _SCOPES_ABI and _restrict(struct.pack("QQQ", 0, 0, _SCOPES))


def restrict_files(
    *, hidden: Sequence[str], readable: Sequence[str] = (), writable: Sequence[str] = ()
) -> bool:
    """From now on this process, and all that it starts, can write only to ``writable`` paths and what is below them; and
    cannot list, read or execute ``hidden`` ones, except what is ``readable`` or ``writable`` in them. Signals are
    restricted as well, if possible. Returns whether the kernel supports it.

    A parent folder of a hidden path can be traversed, but not listed: Landlock has allow rules only, and a rule for a
    folder holds for everything in it.
    """
    version = abi_version()
    if version == 0:
        return False
    access = (1 << _ACCESS_COUNTS.get(version, _MAX_ACCESS_COUNT)) - 1
    visible = _visible_paths("/", [os.path.realpath(path) for path in hidden])
    allowed = [
        *((path, _READ_ACCESS) for path in (*visible, *readable)),
        *((path, access) for path in (*_WRITABLE_DEVICES, *writable)),
    ]
    scopes = struct.pack("QQ", 0, _SCOPES) if version >= _SCOPES_ABI else b""
    return _restrict(struct.pack("Q", access) + scopes, allowed)


def _restrict(ruleset: bytes, allowed: Sequence[tuple[str, int]] = ()) -> bool:
    """Apply the rule set for good, except for the access that is allowed to these paths. Returns whether it worked."""
    rules = _libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if rules < 0:
        return False
    try:
        for path, access in allowed:
            _allow(rules, path, access)
        return bool(_libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _visible_paths(folder: str, hidden: Sequence[str]) -> Iterator[str]:
    """The folder itself if nothing in it is hidden; else the paths in it that are not."""
    if folder in hidden:
        return
    inside = [path for path in hidden if path.startswith(f"{folder.rstrip('/')}/")]
    if not inside:
        yield folder
        return
    for entry in _list_entries(folder):
        yield from _visible_paths(entry, inside)


def _list_entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            # The target of a link has its own rule.
            return [entry.path for entry in found if not entry.is_symlink()]
    except OSError:
        return []


def _allow(rules: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it was removed meanwhile
        return
    try:
        allowed = access if os.path.isdir(path) else access & _FILE_ACCESS  # noqa: PTH112 - no more imports than needed
        rule = struct.pack("=Qi", allowed, fd)
        _libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
