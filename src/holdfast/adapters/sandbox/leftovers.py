"""Remembers in a file which processes and folders the plain tools of this server have, so that the next start can remove
what is left if everything was killed at once.

Usually there is nothing to remove: a fork server that loses its server cleans up, and so does the process that watches
a fork server. The file is locked while its server lives. A process is never killed for its number alone.
"""

import contextlib
import fcntl
import json
import logging
import os
import signal
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.processes import read_boot_id, read_process
from holdfast.adapters.sandbox.folder_removal import remove_folder
from holdfast.adapters.sandbox.process_table import list_pids

_SUFFIX: Final = ".json"
_KILL_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ToolRecord:
    """The file of this server. A disk error never stops a call: then there is no record of it."""

    folder: Path
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)
    _boot_id: str | None = field(default_factory=read_boot_id)
    _fd: int | None = None
    _roots: list[str] = field(default_factory=list)
    # By session: when its first process was started, in ticks.
    _sessions: dict[int, int] = field(default_factory=dict)

    def add_root(self, root: str) -> None:
        """A folder in which calls will have their folders."""
        self._roots.append(root)
        self._save()

    def remove_root(self, root: str) -> None:
        if root in self._roots:
            self._roots.remove(root)
            self._save()

    @contextlib.contextmanager
    def record_session(self, pid: int) -> Iterator[None]:
        """Hold this while the process and those of its session may live."""
        if (facts := read_process(pid)) is not None:
            self._sessions[pid] = facts.started_at_tick
            self._save()
        try:
            yield
        finally:
            # The file is written again with the next call. A session that is over does no harm in it.
            self._sessions.pop(pid, None)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.folder / f"{self._name}{_SUFFIX}"

    def _save(self) -> None:
        content = {
            "boot": self._boot_id,
            "roots": self._roots,
            "sessions": [*self._sessions.items()],
        }
        # Only the first line counts: what an earlier, longer one has left behind it needs no removal.
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = self._open()
            os.pwrite(self._fd, json.dumps(content).encode() + b"\n", 0)

    def _open(self) -> int:
        """A new file gets its name when it is locked, so that nobody takes it for that of a dead server."""
        self.folder.mkdir(stat.S_IRWXU, parents=True, exist_ok=True)
        unnamed = self.folder / f"{self._name}.new"
        fd = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self._path)
        except OSError:
            os.close(fd)
            raise
        return fd


def sweep_leftovers(folder: Path) -> bool:
    """Kill the processes and remove the folders of servers that are dead. Returns whether there was a process."""
    found = False
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its server lives
            found |= _sweep_record(_parse(file.readline()))
            path.unlink(missing_ok=True)
    return found


def _parse(line: bytes) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(line)
    except ValueError:  # the server died before it wrote anything
        return {}
    return content


def _sweep_record(record: dict[str, Any]) -> bool:
    sessions = dict(record.get("sessions", ())) if record.get("boot") == read_boot_id() else {}
    killed = kill_sessions(sessions)
    roots = [root for root in record.get("roots", ()) if os.path.lexists(root)]
    for root in roots:
        remove_folder(root)
    if killed or roots:
        extra = {"processes": len(killed), "folders": len(roots)}
        log.warning("tools.leftovers_removed", extra=extra)
    return bool(killed)


def kill_sessions(sessions: dict[int, int]) -> set[int]:
    """Kill the processes of these sessions (each with the tick at which it began); return their pids."""
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline and (found := _find_members(sessions)):
        killed |= found.keys()
        for session in set(found.values()):
            with contextlib.suppress(OSError):
                os.killpg(session, signal.SIGKILL)  # tools cannot leave their process group
    return killed


def _find_members(sessions: dict[int, int]) -> dict[int, int]:
    """The live processes of these sessions, each with its session. A number may be another session's by now: then it
    began at another time, or its processes are no tools."""
    if not sessions:
        return {}
    members: dict[int, int] = {}
    for pid in list_pids():
        facts = read_process(pid)
        began_at_tick = None if facts is None else sessions.get(facts.session)
        if facts is None or began_at_tick is None:
            continue
        is_first = pid == facts.session
        is_in_time = (
            facts.started_at_tick == began_at_tick
            if is_first
            else facts.started_at_tick >= began_at_tick
        )
        if is_in_time and _is_confined(pid):
            members[pid] = facts.session
    return members


def _is_confined(pid: int) -> bool:
    """Whether the process cannot gain privileges, as no tool can. A zombie needs no killing."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return False
    fields = dict(line.split(b":", 1) for line in lines if b":" in line)
    is_zombie = fields.get(b"State", b"").strip().startswith(b"Z")
    return fields.get(b"NoNewPrivs", b"").strip() == b"1" and not is_zombie
