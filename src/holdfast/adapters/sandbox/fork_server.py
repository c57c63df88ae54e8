"""A process that is ready to fork: it forks once per tool call, enforces the limits of the forks, and kills them.

`fork_server_pool.py` starts and talks to it. Imports only the standard library and modules that do the same,
and stays single-threaded so that forking is safe. Code that users wrote runs in the forks only (`child.py`).
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.sandbox import child, confinement, group_usage, landlock, syscall_filter
from holdfast.adapters.sandbox.folder_removal import remove_folder
from holdfast.adapters.sandbox.folder_usage import FIRST_CHECK_SECONDS, FolderCheck, FolderUsage
from holdfast.adapters.sandbox.fork_server_watch import Watch, fork_watched
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.ports.sandbox import MAX_DESCRIPTORS

FDS_PER_CALL: Final = 4
"""Those that every call has; its descriptors follow them."""

REPORT_END: Final = b"\n"
TERMINATE: Final = b"t"
"""What the server writes to ask the processes of a call to end. To have them killed it closes its end."""

CHECK_SECONDS: Final = 0.05
"""Time between two checks of what the calls use; shorter calls are never checked."""

PROGRAM_CHECK_SECONDS: Final = 0.25
"""The same for programs, which run for hours; and the pause is at least ``_PAUSE_FACTOR`` times as long as a check."""

_PAUSE_FACTOR: Final = 20

_INIT_PROCESSES: Final = 1
"""Processes of ours in the pid namespace of a tool (process 1)."""

_MAX_FDS: Final = 1 << 16
_CHANNEL_FD: Final = 3


class ForkKind(Enum):
    """What a fork is for: a call of a tool, or a program that runs until it is ended."""

    CALL = b"c"
    PROGRAM = b"p"


@dataclass(slots=True)
class _Call:
    """One fork. ``pid`` is also the id of its process group."""

    pid: int
    kind: ForkKind
    report_fd: int
    folder: str | None
    started_at: float
    killed_for: str | None = None
    is_ending: bool = False
    exit_code: int | None = None
    remover_pid: int | None = None
    folder_check: FolderCheck | None = None


@dataclass(slots=True)
class ForkServer:
    control: socket.socket
    root: str | None
    """Where each call gets a folder. None: this process may make namespaces, and each call has its own /tmp."""
    environment: child.Environment | None
    """What else the forks may import. This process itself imports nothing from it."""
    hidden: list[str]
    """Paths that Landlock hides from the forks; not needed where each call has its own namespaces."""
    writable: list[str]
    """Where the forks may write besides their folder; not needed there either."""
    user: ToolUser | None
    """Who the forks run as, and this process; None: who started it."""
    needed: list[str]
    """What that user must be able to read: the interpreter and the packages."""
    own_network: bool
    """Whether each call has its own network namespace; only where ``root`` is None."""
    memory_bytes: int
    processes: int
    threads: int
    open_files: int
    file_bytes: int
    folder_bytes: int
    folder_files: int
    watch: Watch | None = None

    _calls: dict[int, _Call] = field(default_factory=dict)
    _filters: syscall_filter.Filters | None = None
    _checked_at: float = 0.0
    _programs_due_at: float = 0.0
    _folder_count: int = 0

    def serve(self) -> None:
        """Fork for each request until the server closes its end, also by a crash; then kill the forks and clean up."""
        woken = self._set_up()
        watch_fds = [] if self.watch is None else [self.watch.ended_fd]
        while True:
            reports = {call.report_fd: call for call in self._calls.values() if not call.is_ending}
            watched = [self.control.fileno(), woken, *watch_fds, *reports]
            ready, _, _ = select.select(watched, [], [], self._select_timeout())
            if woken in ready:
                os.read(woken, 4096)
            if not set(watch_fds).isdisjoint(ready):
                break
            for report in reports.keys() & set(ready):
                self._end_call(reports[report])
            if self.control.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self.control, 1, FDS_PER_CALL + MAX_DESCRIPTORS)
                if not data:
                    break
                self._start_call(ForkKind(data), fds)
            self._enforce_limits()
            self._reap()
        self._shut_down()

    def _set_up(self) -> int:
        confinement.adopt_orphans()
        self._confine_all_calls()
        confinement.hide_memory()
        woken, waker = os.pipe()
        for fd in (woken, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        gc.freeze()  # the forks share these pages as long as the collector does not write to them
        return woken

    def _confine_all_calls(self) -> None:
        """Confine this process as far as its forks shall be: they inherit it, so it costs a call nothing."""
        has_own_user = False
        owns_hidden = self.user is not None and _owns_any(self.user.uid, self.hidden)
        # Without a root the forks drop the privileges themselves, after they have made their namespaces.
        if self.root is not None:
            has_own_user = self.user is not None and self.user.become(
                needed=self.needed, writable=self.writable, folder=self.root
            )
            if not has_own_user:
                confinement.drop_privileges()
        guard = syscall_filter.Guard(
            protected=tuple(_protected_pids(self.watch)),
            files=self.root is not None and (owns_hidden or not has_own_user),
            landlock_abi=landlock.abi_version(),
        )
        self._filters = syscall_filter.build_filters(guard)
        if self._filters is not None:
            try:
                syscall_filter.install_filter(self._filters.fork_server)
            except OSError:  # a kernel without seccomp filters
                self._filters = None

    def _select_timeout(self) -> float | None:
        if not self._calls:
            return None
        is_programs = all(call.kind is ForkKind.PROGRAM for call in self._calls.values())
        if not is_programs:
            return CHECK_SECONDS
        return max(CHECK_SECONDS, self._programs_due_at - time.monotonic())

    def _start_call(self, kind: ForkKind, fds: list[int]) -> None:
        channel, stdout, stderr, report, *given = fds
        folder = None
        try:
            if self.root is not None:
                self._folder_count += 1
                folder = f"{self.root}/{self._folder_count}"
                Path(folder).mkdir(stat.S_IRWXU)
            fork = self._fork_in_namespaces if folder is None else os.fork
            pid = _fork_and_run(
                lambda: self._become_tool(kind, (stdout, stderr, channel, *given), folder), fork
            )
        except (
            OSError
        ):  # too many processes, or the disk is full; the caller sees its descriptors closed
            if folder is not None:
                Path(folder).rmdir()
            os.close(report)
        else:
            self._calls[pid] = self._make_call(pid, kind, report, folder)
            _report(report, struct.pack("!q", pid))
        for fd in (channel, stdout, stderr, *given):
            os.close(fd)

    def _make_call(self, pid: int, kind: ForkKind, report: int, folder: str | None) -> _Call:
        call = _Call(pid, kind, report, folder, time.monotonic())
        if folder is not None:
            limits = FolderUsage(self.folder_files, self.folder_bytes)
            call.folder_check = FolderCheck(folder, limits, call.started_at + FIRST_CHECK_SECONDS)
        return call

    def _fork_in_namespaces(self) -> int:
        return confinement.fork_in_namespaces(own_network=self.own_network)

    def _become_tool(self, kind: ForkKind, fds: tuple[int, ...], folder: str | None) -> None:
        """``fds`` get the numbers from 1 on: stdout, stderr, the channel, the descriptors of the call."""
        os.setsid()
        # The kernel gives numbers in ascending order, so none of these is the place of one before it.
        for place, source in enumerate(fds, start=1):
            os.dup2(source, place, inheritable=place < _CHANNEL_FD)
        os.closerange(1 + len(fds), _MAX_FDS)
        if folder is None:
            confinement.enter_namespaces(
                self.file_bytes, own_network=self.own_network, max_files=self.folder_files
            )
        confinement.set_limits(
            data_bytes=self.memory_bytes, open_files=self.open_files, file_bytes=self.file_bytes
        )
        if folder is None:
            landlock.restrict_signals()
        else:
            readable = [self.environment.prefix] if self.environment else []
            writable = [*self.writable, folder]
            landlock.restrict_files(hidden=self.hidden, readable=readable, writable=writable)
        if self._filters is not None:
            is_program = kind is ForkKind.PROGRAM
            filters = self._filters
            syscall_filter.install_filter(filters.program if is_program else filters.call)
        channel_socket = socket.socket(fileno=_CHANNEL_FD)
        child.answer_call(channel_socket, folder or "/tmp", self.environment)  # noqa: S108 - the fork's own mount

    def _enforce_limits(self) -> None:
        """Kill the calls whose processes together are too many or use too much memory, or whose folder is too large."""
        now = time.monotonic()
        if now < self._checked_at + CHECK_SECONDS:
            return
        includes_programs = now >= self._programs_due_at
        live = {
            pid
            for pid, call in self._calls.items()
            if not call.is_ending and now >= call.started_at + CHECK_SECONDS
            if includes_programs or call.kind is not ForkKind.PROGRAM
        }
        if not live:
            return
        self._checked_at = now
        self._check_usage(live, now)
        if includes_programs:
            took = time.monotonic() - now
            pause = max(PROGRAM_CHECK_SECONDS, _PAUSE_FACTOR * took)
            self._programs_due_at = time.monotonic() + pause

    def _check_usage(self, live: set[int], now: float) -> None:
        init_processes = 0 if self.root is not None else _INIT_PROCESSES
        limits = group_usage.Usage(
            processes=self.processes + init_processes,
            threads=self.threads + init_processes,
            memory_bytes=self.memory_bytes,
        )
        for pid, use in group_usage.measure_groups(live, limits=limits).items():
            if (excess := use.exceeded_limit(limits)) is not None:
                self._kill_call(self._calls[pid], excess)
        for call in (self._calls[pid] for pid in live):
            check = call.folder_check
            if check is not None and (excess := check.run(now, _fork_and_measure)) is not None:
                self._kill_call(call, excess)

    def _end_call(self, call: _Call) -> None:
        """The server wants the call to end. If it has died, the call is killed."""
        with contextlib.suppress(OSError):
            if os.read(call.report_fd, 1) == TERMINATE:
                _kill_group(call.pid, signal.SIGTERM)
                return
        self._kill_call(call)

    def _kill_call(self, call: _Call, killed_for: str | None = None) -> None:
        if not call.is_ending:
            call.is_ending = True
            call.killed_for = killed_for
        if call.exit_code is None:
            os.kill(call.pid, signal.SIGKILL)  # it may not have its process group yet
        _kill_group(call.pid)

    def _reap(self) -> None:
        """Reap every process that ended, also orphans; and finish the calls whose processes are all gone."""
        with contextlib.suppress(ChildProcessError):
            while reaped := os.waitpid(-1, os.WNOHANG):
                pid, status = reaped
                if pid == 0:
                    break
                if pid in self._calls:
                    code = os.waitstatus_to_exitcode(status)
                    inside = self.root is None
                    self._calls[pid].exit_code = (
                        confinement.decode_exit_code(code) if inside else code
                    )
                    self._kill_call(self._calls[pid])
                for call in self._calls.values():
                    if call.remover_pid == pid:
                        call.remover_pid = 0
                    check = call.folder_check
                    if check is not None and check.pid == pid:
                        excess = check.end(os.waitstatus_to_exitcode(status))
                        if excess is not None:
                            self._kill_call(call, excess)
        for call in [call for call in self._calls.values() if call.exit_code is not None]:
            self._finish_call(call)

    def _finish_call(self, call: _Call) -> None:
        if call.remover_pid is None:
            if _kill_group(call.pid):
                return  # some are still dying; the next SIGCHLD wakes us
            end = {"exit_code": call.exit_code, "killed_for": call.killed_for}
            _report(call.report_fd, json.dumps(end).encode() + REPORT_END)
            call.remover_pid = _remove_folder(call.folder)
        if call.remover_pid == 0:
            del self._calls[call.pid]
            os.close(call.report_fd)  # tells the server that the folder is removed

    def _shut_down(self) -> None:
        for call in self._calls.values():
            self._kill_call(call)
        if self.root is not None:
            remove_folder(self.root)


def _owns_any(uid: int, paths: list[str]) -> bool:
    existing = [path for path in map(Path, paths) if path.exists()]
    return any(path.stat().st_uid == uid for path in existing)


def _protected_pids(watch: Watch | None) -> list[int]:
    """Pids that a tool may not signal: all at once, this process, the one that watches it, the server. In a pid
    namespace there are no others."""
    parent = os.getppid()
    server = parent if watch is None else watch.server_pid
    groups = [os.getpgrp(), os.getpgid(server) if server else 0]
    return [pid for pid in (-1, os.getpid(), parent, server, *(-group for group in groups)) if pid]


def _fork_and_run(work: Callable[[], None], fork: Callable[[], int] = os.fork) -> int:
    """Fork a process that does the work and exits; return its pid."""
    pid = fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            work()
        finally:
            os._exit(1)  # never return into the server's loop
    return pid


def _remove_folder(folder: str | None) -> int:
    """Remove the folder: at once if it is empty (returns 0), else in a new process (returns its pid), for it may take
    long."""
    if folder is None:
        return 0
    try:
        Path(folder).rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            return _fork_and_run(lambda: _remove_in_child(folder))
    return 0


def _fork_and_measure(work: Callable[[], None]) -> int:
    def measure() -> None:
        os.closerange(_CHANNEL_FD, _MAX_FDS)
        work()

    return _fork_and_run(measure)


def _remove_in_child(folder: str) -> None:
    os.closerange(_CHANNEL_FD, _MAX_FDS)
    remove_folder(folder)


def _report(report_fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the caller has closed its end
        os.write(report_fd, data)


def _kill_group(pid: int, number: int = signal.SIGKILL) -> bool:
    """Kill the process group, or send it another signal; returns whether there was a process to kill."""
    try:
        os.killpg(pid, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # macOS raises PermissionError if only zombies are left
        return False
    return True


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    control = socket.socket(fileno=options.pop("control"))
    environment_options = options.pop("environment")
    environment = None if environment_options is None else child.Environment(**environment_options)
    user = options.pop("user")
    options["user"] = None if user is None else ToolUser(*user)
    root = options["root"]
    watch = None if root is None else fork_watched(root, [control.fileno()])
    ForkServer(control=control, environment=environment, watch=watch, **options).serve()
