"""How many processes a call has and how much memory they hold together, as /proc tells it.

The kernel limits single processes only; what a call's processes come to together is looked at now and then.
"""

import contextlib
import os
from collections.abc import Container
from typing import Final, NamedTuple

_KIB: Final = 1024


class Use(NamedTuple):
    processes: int
    memory_bytes: int


def is_possible() -> bool:
    """Whether this kernel tells who is whose child (all common ones do)."""
    return _children(os.getpid()) is not None


def use_of_groups(groups: Container[int], *, enough: int) -> dict[int, Use]:
    """What each of the process groups among our descendants has; counting stops at ``enough`` processes.

    Memory that was ours before the fork is not counted. What processes have shared since counts for each;
    shared mappings count once.
    """
    own = _memory(os.getpid())[0]
    found: dict[int, tuple[int, int, int]] = {}
    waiting = _children(os.getpid()) or []
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):  # it ended meanwhile
            group = os.getpgid(pid)
            if group not in groups:
                continue
            count, private, shared = found.get(group, (0, 0, 0))
            if count >= enough:
                continue
            held, mapped = _memory(pid)
            found[group] = (count + 1, private + max(0, held - own), max(shared, mapped))
            waiting += _children(pid) or []
    return {
        group: Use(count, private + shared) for group, (count, private, shared) in found.items()
    }


def _children(pid: int) -> list[int] | None:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb", buffering=0) as file:  # noqa: PTH123 - read many times a second
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
