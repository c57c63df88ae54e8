"""A warm process that forks once per call, keeps what it forked within its limits, and ends it.

The other side of `warm.py`. Imports only the standard library and its neighbours that do the same, and stays
single-threaded so that forking is safe. Code that users wrote runs in the forks alone (`child.py`).
"""

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.sandbox import child, confinement, group_usage, landlock

FDS_PER_CALL: Final = 4
CHECK_SECONDS: Final = 0.05
"""Between two looks at what the calls use; shorter calls are never looked at."""

_INIT_PROCESSES: Final = 1
"""Processes of ours in the pid space of a tool that has its own."""

_FIRST_FREE_FD: Final = 4
_MAX_FDS: Final = 1 << 16
_CHANNEL_FD: Final = 3


@dataclass(slots=True)
class _Call:
    """One fork and what is known of it. ``pid`` is also its group."""

    pid: int
    report_fd: int
    folder: str | None
    started_at: float
    killed_for: str | None = None
    is_ending: bool = False
    exit_code: int | None = None
    remover_pid: int | None = None


@dataclass(slots=True)
class ForkServer:
    control: socket.socket
    root: str | None
    """Where each call gets its folder. None: it has a /tmp and a pid space of its own, for we may make them."""
    environment: child.Environment | None
    """What else the forks may import. Nothing of it is ever run in this process, nor taken for ours."""
    hidden: list[str]
    """Paths that the forks cannot reach; where they have a root of their own there is nothing to hide."""
    own_network: bool
    """Whether each call is alone in its network; only where it has a pid space of its own too."""
    memory_bytes: int
    processes: int
    threads: int
    open_files: int
    file_bytes: int

    _calls: dict[int, _Call] = field(default_factory=dict)
    _filter: bytes | None = None
    _checked_at: float = 0.0
    _folder_count: int = 0

    def serve(self) -> None:
        """Fork for each request until the server closes its end, by a crash too; then leave nothing behind."""
        woken = self._set_up()
        while True:
            reports = {call.report_fd: call for call in self._calls.values() if not call.is_ending}
            watched = [self.control.fileno(), woken, *reports]
            ready, _, _ = select.select(watched, [], [], self._select_timeout())
            if woken in ready:
                os.read(woken, 4096)
            for report in reports.keys() & set(ready):
                self._kill_call(reports[report])  # the server wants it ended, or is gone
            if self.control.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(self.control, 1, FDS_PER_CALL)
                if not data:
                    break
                self._start_call(fds)
            self._enforce_limits()
            self._reap()
        self._shut_down()

    def _set_up(self) -> int:
        confinement.adopt_orphans()
        confinement.hide_memory()
        if self.root is not None:  # else the forks do it once they have what they need
            confinement.drop_privileges()
        self._filter = confinement.build_group_filter(_protected_pids())
        woken, waker = os.pipe()
        for fd in (woken, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        gc.freeze()  # the forks share these pages for as long as the collector leaves them alone
        return woken

    def _select_timeout(self) -> float | None:
        return CHECK_SECONDS if self._calls else None

    def _start_call(self, fds: list[int]) -> None:
        channel, stdout, stderr, report = fds
        folder = None
        try:
            if self.root is not None:
                self._folder_count += 1
                folder = f"{self.root}/{self._folder_count}"
                Path(folder).mkdir(stat.S_IRWXU)
            fork = self._fork_in_namespaces if folder is None else os.fork
            pid = _fork_and_run(lambda: self._become_tool(channel, stdout, stderr, folder), fork)
        except OSError:  # no more processes or no room; the caller sees its descriptors closed
            if folder is not None:
                Path(folder).rmdir()
            os.close(report)
        else:
            self._calls[pid] = _Call(pid, report, folder, time.monotonic())
            _report(report, struct.pack("!q", pid))
        for fd in (channel, stdout, stderr):
            os.close(fd)

    def _fork_in_namespaces(self) -> int:
        return confinement.fork_in_namespaces(own_network=self.own_network)

    def _become_tool(self, channel: int, stdout: int, stderr: int, folder: str | None) -> None:
        os.setsid()
        for source, place in ((stdout, 1), (stderr, 2), (channel, _CHANNEL_FD)):
            os.dup2(source, place, inheritable=place != _CHANNEL_FD)
        os.closerange(_FIRST_FREE_FD, _MAX_FDS)
        if folder is None:
            confinement.enter_namespaces(self.file_bytes, own_network=self.own_network)
        confinement.set_limits(
            data_bytes=self.memory_bytes, open_files=self.open_files, file_bytes=self.file_bytes
        )
        landlock.restrict_signals()
        if folder is not None:
            landlock.hide_paths(
                self.hidden, readable=[self.environment.prefix] if self.environment else []
            )
        if self._filter is not None:
            with contextlib.suppress(OSError):  # a kernel without filters
                confinement.install_filter(self._filter)
        channel_socket = socket.socket(fileno=_CHANNEL_FD)
        child.answer_call(channel_socket, folder or "/tmp", self.environment)  # noqa: S108 - nobody else's

    def _enforce_limits(self) -> None:
        """End the calls whose processes are too many or hold too much together."""
        now = time.monotonic()
        if now < self._checked_at + CHECK_SECONDS:
            return
        live = {
            pid
            for pid, call in self._calls.items()
            if not call.is_ending and now >= call.started_at + CHECK_SECONDS
        }
        if not live:
            return
        self._checked_at = now
        attendants = 0 if self.root is not None else _INIT_PROCESSES
        most = group_usage.Usage(
            processes=self.processes + attendants,
            threads=self.threads + attendants,
            memory_bytes=self.memory_bytes,
        )
        for pid, use in group_usage.measure_groups(live, limits=most).items():
            if (excess := use.exceeded_limit(most)) is not None:
                self._kill_call(self._calls[pid], excess)

    def _kill_call(self, call: _Call, killed_for: str | None = None) -> None:
        if not call.is_ending:
            call.is_ending = True
            call.killed_for = killed_for
        if call.exit_code is None:
            os.kill(call.pid, signal.SIGKILL)  # it may not have its group yet
        _kill_group(call.pid)

    def _reap(self) -> None:
        """Collect everything that ended, orphans too; and finish the calls of which nothing is left."""
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG):
                pid, status = ended
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
        for call in [call for call in self._calls.values() if call.exit_code is not None]:
            self._finish_call(call)

    def _finish_call(self, call: _Call) -> None:
        if call.remover_pid is None:
            if _kill_group(call.pid):
                return  # some are still dying; the next of them wakes us
            call.remover_pid = _remove_folder(call.folder)
        if call.remover_pid == 0:
            del self._calls[call.pid]
            end = {"exit_code": call.exit_code, "killed_for": call.killed_for}
            _report(call.report_fd, json.dumps(end).encode())
            os.close(call.report_fd)

    def _shut_down(self) -> None:
        for call in self._calls.values():
            self._kill_call(call)
        if self.root is not None:
            _remove_tree(self.root)


def _protected_pids() -> list[int]:
    """Whom a tool may not signal: everybody at once, us, the server. In a pid space of our own there is none."""
    server = os.getppid()
    groups = [os.getpgrp(), os.getpgid(server) if server else 0]
    return [pid for pid in (-1, os.getpid(), server, *(-group for group in groups)) if pid]


def _fork_and_run(work: Callable[[], None], fork: Callable[[], int] = os.fork) -> int:
    """A process that does the work and nothing else; its pid."""
    pid = fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            work()
        finally:
            os._exit(1)  # never back into the loop above
    return pid


def _remove_folder(folder: str | None) -> int:
    """Remove the folder: at once if it is empty (0), else by a process of its own, for it may take long."""
    if folder is None:
        return 0
    try:
        Path(folder).rmdir()
    except OSError:
        with contextlib.suppress(OSError):
            return _fork_and_run(lambda: _remove_in_child(folder))
    return 0


def _remove_in_child(folder: str) -> None:
    os.closerange(_CHANNEL_FD, _MAX_FDS)
    _remove_tree(folder)


def _remove_tree(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not Path(folder).exists():
        return
    # A tool may have made its folders unreadable; they are still ours.
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


def _report(report_fd: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the caller gave up
        os.write(report_fd, data)


def _kill_group(pid: int) -> bool:
    """Whether there was somebody to kill."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # the second is how macOS says that only zombies are left
        return False
    return True


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    control = socket.socket(fileno=options.pop("control"))
    told = options.pop("environment")
    environment = None if told is None else child.Environment(**told)
    ForkServer(control=control, environment=environment, **options).serve()
