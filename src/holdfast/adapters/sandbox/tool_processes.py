"""Which processes of this machine belong to tools, and when the last one lived."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.adapters.processes import read_process
from holdfast.adapters.sandbox.process_table import is_confined

REMEMBERED_SECONDS: Final = 60.0
"""How long after its end a tool may still be behind a connection: it may have waited to be accepted."""

COLLECTION_SECONDS: Final = 5.0
"""How long after its end a socket may live that a tool had sent to itself. No process has it open; the kernel collects it
when the next UNIX socket is closed, as we do at the end of each call, but on a busy machine not at once."""

_MAX_ANCESTORS: Final = 1000
_MAX_ATTEMPTS: Final = 3
_INIT: Final = 1


@dataclass(frozen=True, slots=True)
class CallProcesses:
    """The processes of one call: all descendants of its fork server, and at the plain level one session."""

    root_pid: int
    session: int | None


@dataclass(slots=True)
class ToolProcesses:
    _live: list[CallProcesses] = field(default_factory=list)
    _lost_at: float | None = None
    _ended: deque[tuple[float, CallProcesses]] = field(default_factory=deque)

    @contextlib.contextmanager
    def track(self, call: CallProcesses) -> Iterator[None]:
        """Hold this while processes of the call may live."""
        self._live.append(call)
        try:
            yield
        finally:
            self._live.remove(call)
            self._ended.append((time.monotonic(), call))
            self._forget_old()

    @property
    def may_have_sockets(self) -> bool:
        """Whether a socket of a tool may be open now."""
        now, lost_at = time.monotonic(), self._lost_at
        was_lost = lost_at is not None and now < lost_at + REMEMBERED_SECONDS
        has_just_ended = bool(self._ended) and now < self._ended[-1][0] + COLLECTION_SECONDS
        return bool(self._live) or was_lost or has_just_ended

    def report_lost(self) -> None:
        """Processes of tools were killed, but nobody has seen them end."""
        self._lost_at = time.monotonic()

    def may_have_lived(self, moment: float) -> bool:
        """Whether a tool's process may have lived shortly before that moment (monotonic seconds)."""
        if self._live:
            return True
        ends = [self._ended[-1][0]] if self._ended else []
        if self._lost_at is not None:
            ends.append(self._lost_at)
        return bool(ends) and moment <= max(ends) + REMEMBERED_SECONDS

    def list_recent(self) -> list[CallProcesses]:
        """The calls that run, and those that have ended lately."""
        self._forget_old()
        return [*self._live, *(call for _, call in self._ended)]

    def _forget_old(self) -> None:
        # The last one stays: it says when a tool last lived.
        while len(self._ended) > 1 and self._ended[0][0] + REMEMBERED_SECONDS < time.monotonic():
            self._ended.popleft()


def may_be_tool_process(pid: int, calls: list[CallProcesses]) -> bool:
    """Whether the process belongs to one of the calls, or to a tool of another server of this machine; also True if that
    cannot be read."""
    if is_confined(pid) is not False:
        return True
    roots = {call.root_pid for call in calls}
    sessions = {call.session for call in calls}
    for _ in range(_MAX_ATTEMPTS):  # a parent may end just now, and the process gets another one
        verdict = _descends_from(pid, roots, sessions)
        if verdict is not None:
            return verdict
    return True


def _descends_from(pid: int, roots: set[int], sessions: set[int | None]) -> bool | None:
    """None if a process on the way cannot be read."""
    for _ in range(_MAX_ANCESTORS):
        facts = read_process(pid)
        if facts is None:
            return None
        if pid in roots or facts.session in sessions:
            return True
        if pid == _INIT or facts.parent == 0:
            return False
        pid = facts.parent
    return None
