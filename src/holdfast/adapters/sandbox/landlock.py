"""What the kernel's Landlock keeps from a tool although its user could: Holdfast's own files (Linux 5.13 and newer), and
signals to others (Linux 6.12 and newer). Privileges must be gone.

Runs in the sandbox's own processes; imports only the standard library.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final

# Landlock's calls have the same numbers on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_SCOPE_SIGNAL: Final = 2
# The kinds of access that the kernel knows, by the version of its interface; each has all of those before.
_ACCESS_COUNTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_MAX_ACCESS_COUNT: Final = 16
# Run, write, read, truncate, order a device about: the others are of folders.
_FILE_ACCESS: Final = 1 | 2 | 4 | 1 << 14 | 1 << 15

# Run, read, list.
_READ_ACCESS: Final = 1 | 4 | 8

_libc = ctypes.CDLL(None, use_errno=True)


def is_supported() -> bool:
    return _abi_version() > 0


def restrict_signals() -> bool:
    """From now on this process, and all it starts, can signal only each other, whatever the way. Whether this
    kernel can do it. The filter cannot: it does not know the numbers of others' threads."""
    return _restrict(struct.pack("QQQ", 0, 0, _SCOPE_SIGNAL))


def hide_paths(paths: Sequence[str], readable: Sequence[str] = ()) -> bool:
    """From now on this process, and all it starts, can do nothing with these paths and what is below them: not
    list, read, write or run it; ``but`` can be read and run, also if it is there. Whether this kernel can do it.

    A path that leads to one of them can be passed, but not listed, and nothing new made right in it: Landlock knows
    only what is allowed, and what is allowed of a folder is allowed of all in it.
    """
    kinds = (
        (1 << _ACCESS_COUNTS.get(version, _MAX_ACCESS_COUNT)) - 1
        if (version := _abi_version()) > 0
        else 0
    )
    if not kinds or not paths:
        return False
    seen = _visible_paths("/", [os.path.realpath(path) for path in paths])
    allowed = [*((path, kinds) for path in seen), *((path, _READ_ACCESS) for path in readable)]
    return _restrict(struct.pack("Q", kinds), allowed)


def _restrict(ruleset: bytes, allowed: Sequence[tuple[str, int]] = ()) -> bool:
    """Whether the kernel keeps what is wanted, but for what is allowed of these paths. For good."""
    if sys.platform != "linux":
        return False
    rules = _libc.syscall(_CREATE_RULESET, ruleset, len(ruleset), 0)
    if rules < 0:
        return False
    try:
        for path, kinds in allowed:
            _allow(rules, path, kinds)
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
    """The place, if nothing in it is hidden; else what of it is not."""
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
            # Where a link leads is seen or hidden by itself.
            return [entry.path for entry in found if not entry.is_symlink()]
    except OSError:
        return []


def _allow(rules: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # gone meanwhile
        return
    try:
        allowed = access if os.path.isdir(path) else access & _FILE_ACCESS  # noqa: PTH112 - no more imports than needed
        rule = struct.pack("=Qi", allowed, fd)
        _libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
