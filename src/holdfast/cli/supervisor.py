"""Runs several processes that do the same: forks them, starts those again that die, and stops all at a signal.

It does not know what the processes do. It has no threads, so that it can fork at any time, and it waits without polling.
"""

import contextlib
import ctypes
import gc
import json
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from holdfast.errors import BackendError, CannotStart

FIRST_DELAY_SECONDS: Final = 0.5
"""Before a process that died is started again. One that dies at once must not use a core for its restarts."""

LONGEST_DELAY_SECONDS: Final = 30.0
"""The delay doubles up to this: what keeps a process from starting may be over half a minute later."""

HEALTHY_SECONDS: Final = 60.0
"""A process that has lived so long was healthy: the delay begins anew."""

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_HANDLED_SIGNALS: Final = (*_STOP_SIGNALS, signal.SIGCHLD)
_PR_SET_PDEATHSIG: Final = 1
# A pipe passes on whole what is not longer than this (POSIX: at least 512, Linux: 4096). JSON may need six bytes for one
# character of an error.
_STATUS_BYTES: Final = 4096
_ERROR_CHARS: Final = 600

log = logging.getLogger(__name__)

Run = Callable[[Callable[[str], None]], None]
"""What a process does. It calls its argument, with its address, when it is ready. It returns after SIGTERM, and soon
after SIGINT. It may get SIGTERM more than once. It raises BackendError if it cannot start."""


@dataclass(frozen=True, slots=True)
class RestartDelays:
    first_seconds: float = FIRST_DELAY_SECONDS
    longest_seconds: float = LONGEST_DELAY_SECONDS
    healthy_seconds: float = HEALTHY_SECONDS

    def next_delay(self, last_seconds: float | None, lived_seconds: float) -> float:
        """The delay after a process that lived so long and was itself started after ``last_seconds``."""
        if last_seconds is None or lived_seconds >= self.healthy_seconds:
            return self.first_seconds
        return min(2 * last_seconds, self.longest_seconds)


@dataclass(slots=True)
class _Process:
    """One of the processes. After its end it waits for its next start."""

    pid: int | None = None
    status_fd: int | None = None
    started_at: float = 0.0
    start_at: float | None = None
    delay_seconds: float | None = None
    error: str | None = None
    """Why it could not start, in its own words."""


class Supervisor:
    def __init__(
        self,
        run: Run,
        count: int,
        *,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], None] = lambda: None,
        delays: RestartDelays | None = None,
    ) -> None:
        """``on_ready`` gets the address when the first process is ready, ``on_stop`` is called at the first signal."""
        self._run = run
        self._processes = [_Process() for _ in range(count)]
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._delays = delays or RestartDelays()
        self._selector = selectors.DefaultSelector()
        self._was_ready = False
        self._is_stopping = False
        self._all_ended_well = True

    def serve(self) -> bool:
        """Run the processes until SIGINT or SIGTERM; returns whether all of them ended well then.

        The first process starts alone: it upgrades the database, and if it cannot start, there is one error and not
        one from each. In that case raises CannotStart.
        """
        gc.collect()
        gc.freeze()  # the processes share these pages as long as the collector does not write to them
        with _wakeup_pipe() as self._wakeup_fd, self._selector:
            self._selector.register(self._wakeup_fd, selectors.EVENT_READ)
            try:
                self._start(self._processes[0])
                while self._has_work():
                    self._wait()
            finally:
                self._signal_all(signal.SIGTERM)  # nobody is left, unless an error ended the loop
        return self._all_ended_well

    def _has_work(self) -> bool:
        return not self._is_stopping or any(process.pid for process in self._processes)

    def _wait(self) -> None:
        """Wait for a signal, a status or the time of a start, and act on it."""
        ready = {key.fd for key, _ in self._selector.select(self._seconds_to_start())}
        numbers = os.read(self._wakeup_fd, _STATUS_BYTES) if self._wakeup_fd in ready else b""
        for process in self._processes:
            if process.status_fd in ready:
                self._read_status(process)
        for number in numbers:
            if number in _STOP_SIGNALS:
                self._stop()
        for process in self._processes:
            self._reap(process)
        for process in self._processes:
            if process.start_at is not None and process.start_at <= time.monotonic():
                self._start(process)

    def _seconds_to_start(self) -> float | None:
        times = [process.start_at for process in self._processes if process.start_at is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _stop(self) -> None:
        """At the first signal, ask the processes to stop. At the next ones, ask them to hurry.

        The two are different signals: others may have sent SIGTERM to all of us, as systemd does, and it is also what a
        process gets when this one dies.
        """
        if self._is_stopping:
            self._signal_all(signal.SIGINT)
            return
        self._is_stopping = True
        self._on_stop()
        for process in self._processes:
            process.start_at = None
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.pid is not None:
                os.kill(process.pid, number)  # it exists: only we reap it

    def _start(self, process: _Process) -> None:
        process.start_at = None
        process.error = None
        process.started_at = time.monotonic()
        try:
            process.pid, process.status_fd = self._fork()
        except OSError as error:
            process.error = f"Cannot start a process: {error.strerror}."
            self._handle_end(process, "could not be started")
            return
        self._selector.register(process.status_fd, selectors.EVENT_READ)
        log.info("process.started", extra={"pid": process.pid})

    def _fork(self) -> tuple[int, int]:
        """Fork a process; returns its pid and where its status can be read."""
        status_fd, child_status_fd = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        # Until the new process has its own handlers, a signal must wait.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_process(parent, child_status_fd, mask)
        except OSError:
            os.close(status_fd)
            raise
        finally:
            os.close(child_status_fd)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.set_blocking(status_fd, False)
        return pid, status_fd

    def _become_process(
        self, parent: int, status_fd: int, mask: set[int | signal.Signals]
    ) -> NoReturn:
        code = 1
        try:
            os.close(signal.set_wakeup_fd(-1))
            for number in _HANDLED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            for fd in [key.fd for key in self._selector.get_map().values()]:
                os.close(fd)
            self._selector.close()
            # Without the terminal: its Ctrl-C would come besides ours.
            os.setsid()
            end_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = _run_and_report(self._run, status_fd)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # never return into the supervisor's loop

    def _read_status(self, process: _Process) -> None:
        """A process writes at most one status: that it is ready, or why it cannot start."""
        if process.status_fd is None:
            return
        try:
            line = os.read(process.status_fd, _STATUS_BYTES)
        except BlockingIOError:
            line = b""
        self._selector.unregister(process.status_fd)
        os.close(process.status_fd)
        process.status_fd = None
        status = json.loads(line or b"{}")
        process.error = status.get("error")
        if "address" in status and not self._was_ready:
            self._was_ready = True
            self._on_ready(status["address"])
            for other in self._processes:
                if other.pid is None and not self._is_stopping:
                    other.start_at = time.monotonic()

    def _reap(self, process: _Process) -> None:
        if process.pid is None:
            return
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid == 0:
            return
        self._read_status(process)
        code = os.waitstatus_to_exitcode(status)
        if self._is_stopping and code not in (0, *(-number for number in _STOP_SIGNALS)):
            # A process that did not handle signals yet was ended by ours.
            self._all_ended_well = False
        self._handle_end(process, _describe_exit(code))

    def _handle_end(self, process: _Process, description: str) -> None:
        if not self._was_ready and not self._is_stopping:
            process.pid = None
            why = f"The first process of the server {description} before it was ready."
            raise CannotStart(process.error or why)
        extra: dict[str, object] = {"pid": process.pid, "how": description}
        if process.error is not None:
            extra["why"] = process.error
        process.pid = None
        if self._is_stopping:
            log.info("process.ended", extra=extra)
            return
        now = time.monotonic()
        delay = self._delays.next_delay(process.delay_seconds, now - process.started_at)
        process.delay_seconds = delay
        process.start_at = now + delay
        log.error("process.ended", extra={**extra, "restart_seconds": delay})


def end_with_parent(parent: int) -> None:
    """Have this process get SIGTERM when its parent dies, however it does (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def _run_and_report(run: Run, status_fd: int) -> int:
    is_ready = False

    def report_ready(address: str) -> None:
        nonlocal is_ready
        is_ready = True
        _report(status_fd, address=address)

    try:
        run(report_ready)
    except BackendError as error:
        if is_ready:
            raise
        _report(status_fd, error=str(error)[:_ERROR_CHARS])
        return 1
    return 0


def _report(status_fd: int, **status: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the supervisor has died
        os.write(status_fd, json.dumps(status).encode())
    os.close(status_fd)


@contextlib.contextmanager
def _wakeup_pipe() -> Iterator[int]:
    """A descriptor from which the numbers of the signals can be read that have come."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    handlers = {number: signal.signal(number, lambda *_: None) for number in _HANDLED_SIGNALS}
    previous = signal.set_wakeup_fd(waker)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(waker)


def _describe_exit(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with exit code {code}"
