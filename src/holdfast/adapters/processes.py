"""Reads from /proc what identifies a process: its parent, its session, its start, and the boot of the machine (Linux).

Imports only the standard library: the fork server of the sandbox uses it.
"""

from pathlib import Path
from typing import Final, NamedTuple

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


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


def read_boot_id() -> str | None:
    """What distinguishes this start of the machine from all others: numbers and ticks mean nothing after the next one."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None
