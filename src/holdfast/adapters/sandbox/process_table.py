"""Reads what /proc tells about single processes: parent, session, start, open sockets (Linux)."""

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_SOCKET_PREFIX: Final = "socket:["


class ProcessFacts(NamedTuple):
    parent: int
    session: int
    started_at_tick: int
    """Clock ticks since the machine started. Together with the pid it identifies a process."""


def read_process(pid: int) -> ProcessFacts | None:
    """None if there is no such process, or it is hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - read many times
            return parse_stat(file.read())
    except OSError:
        return None


def parse_stat(line: bytes) -> ProcessFacts:
    # The name, in parentheses, may contain any characters, also spaces and parentheses.
    words = line[line.rindex(b")") + 1 :].split()
    return ProcessFacts(int(words[1]), int(words[3]), int(words[19]))


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
