"""How many processes and threads a call has and how much memory they hold together, as /proc tells it.

The kernel limits single processes only; what a call's processes come to together is looked at now and then.
"""

import contextlib
import os
from collections.abc import Container
from typing import Final, NamedTuple

_KIB: Final = 1024


class Usage(NamedTuple):
    processes: int = 0
    threads: int = 0
    memory_bytes: int = 0

    def exceeded_limit(self, limits: "Usage") -> str | None:
        """Of what there is too much, if there is."""
        if self.processes > limits.processes:
            return "processes"
        if self.threads > limits.threads:
            return "threads"
        return "memory" if self.memory_bytes > limits.memory_bytes else None


def is_supported() -> bool:
    """Whether this kernel tells who is whose child (all common ones do)."""
    return _read_children(os.getpid(), os.getpid()) is not None


def measure_groups(groups: Container[int], *, limits: Usage) -> dict[int, Usage]:
    """What each of the process groups among our descendants has; where it is too much, counting stops.

    Memory that was ours before the fork is not counted. What processes share among themselves counts for each:
    the kernel does not tell us which of it is the same.
    """
    own, _ = _read_memory(os.getpid())
    found: dict[int, Usage] = {}
    waiting = _read_children(os.getpid(), os.getpid()) or []
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            group = os.getpgid(pid)
            before = found.get(group, Usage())
            if group not in groups or before.exceeded_limit(limits) is not None:
                continue
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - read many times a second
            private, shared = _read_memory(pid)
            found[group] = now = Usage(
                before.processes + 1,
                before.threads + len(threads),
                before.memory_bytes + max(0, private - own) + shared,
            )
            if now.exceeded_limit(limits) is None:
                for thread in threads:  # each has children of its own
                    waiting += _read_children(pid, thread) or []
    return found


def _read_children(pid: int, thread: int | str) -> list[int] | None:
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return [int(word) for word in file.read().split()]
    except OSError:
        return None


def _read_memory(pid: int) -> tuple[int, int]:
    """Private and shared memory that is really there, in bytes."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
        lines = dict(line.split(b":", 1) for line in file if line.startswith((b"RssA", b"RssS")))
        return _parse_bytes(lines, b"RssAnon"), _parse_bytes(lines, b"RssShmem")
    return 0, 0


def _parse_bytes(lines: dict[bytes, bytes], name: bytes) -> int:
    return int(lines[name].split()[0]) * _KIB if name in lines else 0  # a zombie has none
