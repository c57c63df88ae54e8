"""How many processes and threads a call has and how much memory they use together, read from /proc.

The kernel limits single processes only; the sum over a call's processes is checked periodically.
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
        """The name of the first limit that is exceeded, if any."""
        if self.processes > limits.processes:
            return "processes"
        if self.threads > limits.threads:
            return "threads"
        return "memory" if self.memory_bytes > limits.memory_bytes else None


def is_supported() -> bool:
    """Whether this kernel lists the children of a process (all common ones do)."""
    return _read_children(os.getpid(), os.getpid()) is not None


def measure_groups(groups: Container[int], *, limits: Usage) -> dict[int, Usage]:
    """What each of the process groups among our descendants uses. Counting stops where a limit is exceeded.

    Memory from before the fork is not counted. Memory that processes share counts for each of them, because the
    kernel does not say which pages are the same.
    """
    own, _ = _read_memory(os.getpid())
    usages: dict[int, Usage] = {}
    pending = _read_children(os.getpid(), os.getpid()) or []
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):  # the process has ended
            group = os.getpgid(pid)
            before = usages.get(group, Usage())
            if group not in groups or before.exceeded_limit(limits) is not None:
                continue
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - read many times a second
            private, shared = _read_memory(pid)
            usages[group] = now = Usage(
                before.processes + 1,
                before.threads + len(threads),
                before.memory_bytes + max(0, private - own) + shared,
            )
            if now.exceeded_limit(limits) is None:
                for thread in threads:  # each thread lists its own children
                    pending += _read_children(pid, thread) or []
    return usages


def _read_children(pid: int, thread: int | str) -> list[int] | None:
    try:
        with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return [int(word) for word in file.read().split()]
    except OSError:
        return None


def _read_memory(pid: int) -> tuple[int, int]:
    """Private and shared resident memory, in bytes."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
        lines = dict(line.split(b":", 1) for line in file if line.startswith((b"RssA", b"RssS")))
        return _parse_bytes(lines, b"RssAnon"), _parse_bytes(lines, b"RssShmem")
    return 0, 0


def _parse_bytes(lines: dict[bytes, bytes], name: bytes) -> int:
    return int(lines[name].split()[0]) * _KIB if name in lines else 0  # a zombie has none
