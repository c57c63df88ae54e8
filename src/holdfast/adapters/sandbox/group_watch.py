"""How many processes and threads a call has and how much memory they hold together, as /proc tells it.

The kernel limits single processes only; what a call's processes come to together is looked at now and then.
"""

import contextlib
import os
from collections.abc import Container
from typing import Final, NamedTuple

_KIB: Final = 1024


class Use(NamedTuple):
    processes: int = 0
    threads: int = 0
    memory_bytes: int = 0

    def excess(self, most: "Use") -> str | None:
        """Of what there is too much, if there is."""
        if self.processes > most.processes:
            return "processes"
        if self.threads > most.threads:
            return "threads"
        return "memory" if self.memory_bytes > most.memory_bytes else None


def is_possible() -> bool:
    """Whether this kernel tells who is whose child (all common ones do)."""
    return _children(os.getpid(), os.getpid()) is not None


def use_of_groups(groups: Container[int], *, most: Use) -> dict[int, Use]:
    """What each of the process groups among our descendants has; where it is too much, counting stops.

    Memory that was ours before the fork is not counted. What processes share among themselves counts for each:
    the kernel does not tell us which of it is the same.
    """
    own, _ = _memory(os.getpid())
    found: dict[int, Use] = {}
    waiting = _children(os.getpid(), os.getpid()) or []
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            group = os.getpgid(pid)
            before = found.get(group, Use())
            if group not in groups or before.excess(most) is not None:
                continue
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - read many times a second
            private, shared = _memory(pid)
            found[group] = now = Use(
                before.processes + 1,
                before.threads + len(threads),
                before.memory_bytes + max(0, private - own) + shared,
            )
            if now.excess(most) is None:
                for thread in threads:  # each has children of its own
                    waiting += _children(pid, thread) or []
    return found


def _children(pid: int, thread: int | str) -> list[int] | None:
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return [int(word) for word in file.read().split()]
    except OSError:
        return None


def _memory(pid: int) -> tuple[int, int]:
    """Private and shared memory that is really there, in bytes."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
        lines = dict(line.split(b":", 1) for line in file if line.startswith((b"RssA", b"RssS")))
        return _bytes(lines, b"RssAnon"), _bytes(lines, b"RssShmem")
    return 0, 0


def _bytes(lines: dict[bytes, bytes], name: bytes) -> int:
    return int(lines[name].split()[0]) * _KIB if name in lines else 0  # a zombie has none
