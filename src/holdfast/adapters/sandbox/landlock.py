"""Restricts a tool by Landlock: hides Holdfast's own files (Linux 5.13 and newer) and refuses signals to other processes
(Linux 6.12 and newer). The process must have dropped its privileges before.

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
_SCOPE_SIGNAL: Final = 2
# How many kinds of access the kernel knows, by the version of its interface; a version adds to those before.
_ACCESS_COUNTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_MAX_ACCESS_COUNT: Final = 16
# Execute, write, read, truncate, ioctl: the kinds of access for files; the others are for folders.
_FILE_ACCESS: Final = 1 | 2 | 4 | 1 << 14 | 1 << 15

# Execute, read, list.
_READ_ACCESS: Final = 1 | 4 | 8

_libc = ctypes.CDLL(None, use_errno=True)


def is_supported() -> bool:
    return _abi_version() > 0


def restrict_signals() -> bool:
    """From now on this process, and all that it starts, can send signals only to each other. Returns whether the kernel
    supports it. The seccomp filter cannot do this: it does not know the thread ids of other processes."""
    return _restrict(struct.pack("QQQ", 0, 0, _SCOPE_SIGNAL))


def hide_paths(paths: Sequence[str], readable: Sequence[str] = ()) -> bool:
    """From now on this process, and all that it starts, cannot list, read, write or execute these paths and what is
    below them; except ``readable``, which can be read and executed. Returns whether the kernel supports it.

    A parent folder of a hidden path can be traversed, but not listed, and no files can be created directly in it:
    Landlock has allow rules only, and a rule for a folder holds for everything in it.
    """
    access = (
        (1 << _ACCESS_COUNTS.get(version, _MAX_ACCESS_COUNT)) - 1
        if (version := _abi_version()) > 0
        else 0
    )
    if not access or not paths:
        return False
    visible = _visible_paths("/", [os.path.realpath(path) for path in paths])
    allowed = [*((path, access) for path in visible), *((path, _READ_ACCESS) for path in readable)]
    return _restrict(struct.pack("Q", access), allowed)


def _restrict(ruleset: bytes, allowed: Sequence[tuple[str, int]] = ()) -> bool:
    """Apply the rule set for good, except for the access that is allowed to these paths. Returns whether it worked."""
    if sys.platform != "linux":
        return False
    rules = _libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if rules < 0:
        return False
    try:
        for path, access in allowed:
            _allow(rules, path, access)
        return bool(_libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _abi_version() -> int:
    if sys.platform != "linux":
        return 0
    return int(
        _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    )


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
