"""Finds processes in /proc: all of them, those with the limits of a tool, those that have a socket open (Linux)."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

_SOCKET_PREFIX: Final = "socket:["
_LIMIT_NAME_BYTES: Final = 25
# Each tool has these for good: nobody raises them again without privileges. Hardly another program has one of them.
_LIMITS_OF_TOOLS: Final = (b"Max data size", b"Max file size")


def is_confined(pid: int) -> bool | None:
    """Whether the process has what every tool of every Holdfast server has: no way to gain privileges, and limits that it
    cannot raise. None if it cannot be read."""
    try:
        with (
            open(f"/proc/{pid}/status", "rb", buffering=0) as status,  # noqa: PTH123 - read many times
            open(f"/proc/{pid}/limits", "rb", buffering=0) as limits,  # noqa: PTH123 - as above
        ):
            lines = status.read().splitlines()
            return b"NoNewPrivs:\t1" in lines and _has_limits_of_tools(limits.read())
    except OSError:
        return None


def _has_limits_of_tools(table: bytes) -> bool:
    hard = {
        line[:_LIMIT_NAME_BYTES].rstrip(): line[_LIMIT_NAME_BYTES:].split()[1]
        for line in table.splitlines()
    }
    return all(hard.get(name, b"unlimited") != b"unlimited" for name in _LIMITS_OF_TOOLS)


def list_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names only


def find_sockets(inodes: frozenset[int], pids: Iterable[int]) -> dict[int, int]:
    """For each socket the first of the processes that has it open. Processes that cannot be read are left out."""
    links = {f"{_SOCKET_PREFIX}{inode}]": inode for inode in inodes}
    holders: dict[int, int] = {}
    for pid in pids:
        for link in _read_links(pid):
            if (inode := links.get(link)) is not None:
                holders.setdefault(inode, pid)
        if len(holders) == len(inodes):
            break
    return holders


def _read_links(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115 - a Path would cost more than the call
        except OSError:  # closed meanwhile
            continue
