"""How many files the folder of a call contains and how much space they take, measured while the tool runs.

A small folder is measured at once. A large one takes long, so a process of its own measures it, and less often.
Imports only the standard library.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

FIRST_CHECK_SECONDS: Final = 0.25
"""Shorter calls are never checked."""

_QUICK_FILES: Final = 300
"""A folder with at most this many entries is measured at once; that takes about a millisecond."""

_PAUSE_FACTOR: Final = 5
"""The pause between two checks is at least so many times as long as a check takes."""

_OPEN_LEVELS: Final = 100
"""How many nested folders stay open. From deeper ones the way back is "..", which a tool can change."""

_BLOCK_BYTES: Final = 512
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EXIT_CODES: Final = {None: 0, "folder_files": 3, "folder_bytes": 4}
_EXCESSES: Final = {code: excess for excess, code in _EXIT_CODES.items()}


class FolderUsage(NamedTuple):
    files: int
    """Folders count as well."""
    bytes: int

    def exceeded_limit(self, limits: "FolderUsage") -> str | None:
        if self.files > limits.files:
            return "folder_files"
        return "folder_bytes" if self.bytes > limits.bytes else None


@dataclass(slots=True)
class FolderCheck:
    """The checks of one call's folder."""

    folder: str
    limits: FolderUsage
    next_at: float
    pid: int | None = None
    """The process that measures now."""
    started_at: float = 0.0

    def run(self, now: float, fork_and_run: Callable[[Callable[[], None]], int]) -> str | None:
        """Measure if it is time to; returns the limit that is exceeded. The result of a process comes by `end`."""
        if self.pid is not None or now < self.next_at:
            return None
        quick_limits = self.limits._replace(files=min(self.limits.files, _QUICK_FILES))
        self.started_at = time.monotonic()
        use = measure_folder(self.folder, quick_limits)
        excess = use.exceeded_limit(self.limits)
        if excess is None and use.files > quick_limits.files:
            with contextlib.suppress(OSError):  # no process can be started now
                self.pid = fork_and_run(self._measure_in_child)
        self._plan_next()
        return excess

    def end(self, exit_code: int) -> str | None:
        """The process that measured has ended; returns the limit that is exceeded."""
        self.pid = None
        self._plan_next()
        return _EXCESSES.get(exit_code)

    def _plan_next(self) -> None:
        now = time.monotonic()
        pause = max(FIRST_CHECK_SECONDS, _PAUSE_FACTOR * (now - self.started_at))
        self.next_at = now + pause

    def _measure_in_child(self) -> None:
        excess = measure_folder(self.folder, self.limits).exceeded_limit(self.limits)
        os._exit(_EXIT_CODES[excess])


def measure_folder(folder: str, limits: FolderUsage) -> FolderUsage:
    """What the folder contains, at any depth. Counting stops where a limit is exceeded. Folders that the tool has made
    unreadable count as empty."""
    try:
        levels = [_Level(os.open(folder, _OPEN_FLAGS))]
    except OSError:
        return FolderUsage(0, 0)
    use = levels[0].read(limits.files)
    try:
        while levels and use.exceeded_limit(limits) is None:
            if not levels[-1].folders:
                _leave_level(levels)
            elif _enter_level(levels):
                found = levels[-1].read(limits.files - use.files)
                use = FolderUsage(use.files + found.files, use.bytes + found.bytes)
    finally:
        for level in levels:
            level.close()
    return use


@dataclass(slots=True)
class _Level:
    """One folder on the way from the top. Only the first ones, and the last, stay open."""

    fd: int | None
    folders: list[str] = field(default_factory=list)
    """The names of those inside it that are not yet measured."""

    def read(self, max_files: int) -> FolderUsage:
        """What its entries use, without what is in its folders."""
        files = size = 0
        with contextlib.suppress(OSError), os.scandir(self.fd) as entries:
            for entry in entries:
                files += 1
                with contextlib.suppress(OSError):  # removed meanwhile
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        self.folders.append(entry.name)
                if files > max_files:
                    break
        return FolderUsage(files, size)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _enter_level(levels: list[_Level]) -> bool:
    """Go into the next folder of the last level; False if that is not possible."""
    last = levels[-1]
    name = last.folders.pop()
    try:
        fd = os.open(name, _OPEN_FLAGS, dir_fd=last.fd)
    except OSError:  # removed meanwhile, or unreadable
        return False
    if len(levels) > _OPEN_LEVELS:
        last.close()
    levels.append(_Level(fd))
    return True


def _leave_level(levels: list[_Level]) -> None:
    left = levels.pop()
    while levels and levels[-1].fd is None:
        try:
            levels[-1].fd = os.open("..", _OPEN_FLAGS, dir_fd=left.fd)
        except OSError:  # the tool has moved it; go on where the way back is known
            levels.pop()
    left.close()
