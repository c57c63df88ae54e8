"""Control groups that limit processes to a share of one core (Linux, both versions of control groups)."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Short, so that a process which has used its share waits some milliseconds and not a tenth of a second.
_PERIOD_US = 10_000
_MEMBERS = "cgroup.procs"
_V2_CONTROLLERS = "cgroup.subtree_control"

Limit = Callable[[int, float], None]
"""Limits the process of this pid, with all its threads, to this share of one core."""


class NoControlGroups(Exception):
    """Control groups for CPU time cannot be made here; the message says why."""


@contextmanager
def open_cpu_groups() -> Iterator[Limit]:
    """Each process gets a group of its own. All groups are removed at the end, and their processes live on without limit."""
    parent = _read_parent()
    numbers = itertools.count()
    with ExitStack() as groups:

        def limit(pid: int, share: float) -> None:
            group = parent / f"holdfast-bench-{os.getpid()}-{next(numbers)}"
            try:
                group.mkdir()
                groups.callback(_remove, group, parent)
                _set_quota(group, int(share * _PERIOD_US))
                _add_member(group, pid)
            except OSError as error:
                raise NoControlGroups(f"{error.filename or group}: {error.strerror}") from error

        yield limit


def _set_quota(group: Path, quota_us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def _add_member(group: Path, pid: int) -> None:
    (group / _MEMBERS).write_text(str(pid))


def _remove(group: Path, parent: Path) -> None:
    # A group with members cannot be removed. Those that end meanwhile need not be moved.
    for pid in (group / _MEMBERS).read_text().split():
        with suppress(ProcessLookupError):
            _add_member(parent, int(pid))
    group.rmdir()


def _read_parent() -> Path:
    try:
        return find_parent(
            Path("/proc/self/cgroup").read_text(), Path("/proc/self/mounts").read_text()
        )
    except OSError as error:
        raise NoControlGroups(f"{error.filename}: {error.strerror}") from error


def find_parent(memberships: str, mounts: str) -> Path:
    """The folder in which groups with a limit of CPU time can be made, by the two files of ``/proc/self``."""
    mounted = [line.split() for line in mounts.splitlines()]
    for _, names, path in (line.split(":", 2) for line in memberships.splitlines()):
        for _, mount, kind, options, *_ in mounted:
            own = Path(mount, path.lstrip("/"))
            if "cpu" in names.split(",") and kind == "cgroup" and "cpu" in options.split(","):
                # A container may show its own group as the whole.
                return own if own.exists() else Path(mount)
            if not names and kind == "cgroup2" and (found := _find_v2_parent(own, Path(mount))):
                return found
    raise NoControlGroups("no control group above this process can limit CPU time")


def _find_v2_parent(own: Path, mount: Path) -> Path | None:
    """The group of this process cannot have both members and limited groups, but one above it can have the latter."""
    for group in (own, *own.parents):
        if not group.is_relative_to(mount):
            return None
        with suppress(OSError):
            if "cpu" in (group / _V2_CONTROLLERS).read_text().split():
                return group
    return None
