"""Servers and commands without the seconds of CPU that a start takes to import its libraries.

A launcher process imports them once and forks whenever a test asks for a server. That is a process of its own with its
own environment, signals and exit code; only what ``holdfast`` does before its first line is shared. Tests about that
first line use the command itself (``run_server_command`` and ``run_command`` in tests/acceptance).
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

from tests.support.network_hosts import NAMESPACE, move_to_namespace
from tests.support.shifted_clock import shift_clock

# The variable that makes the clock of a forked process wrong by so many seconds.
CLOCK_OFFSET = "TEST_CLOCK_OFFSET_SECONDS"
_REQUEST_BYTES = 100_000
_START_SECONDS = 120.0


class ForkedProcess:
    """A process that the launcher forked, to be used like a Popen: the launcher's side tells pid and exit code."""

    def __init__(self, stdout: int, status: int) -> None:
        self.stdout: IO[str] = os.fdopen(stdout, encoding="utf-8")
        self._status = os.fdopen(status, "rb", buffering=0)
        self._code: int | None = None
        try:
            self.pid = self._next_number(_START_SECONDS)
        except BaseException:
            self.stdout.close()
            self._status.close()
            raise

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """The exit code, negative for a signal; subprocess.TimeoutExpired if it goes on for longer."""
        if self._code is None:
            self._code = self._next_number(timeout)
            self._status.close()
        return self._code

    def _send(self, number: int) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _next_number(self, timeout: float) -> int:
        readable, _, _ = select.select([self._status], [], [], timeout)
        if not readable:
            raise subprocess.TimeoutExpired("holdfast server", timeout)
        # Each number is one write of a few bytes, which a pipe passes on whole.
        number = self._status.read(4)
        if not number:
            # Zero would be a pid that means the whole process group of the test.
            raise ChildProcessError(
                "The launcher of the test servers has ended; see its error output."
            )
        return int.from_bytes(number, signed=True)


def launch(arguments: list[str], environment: dict[str, str], stderr: int) -> ForkedProcess:
    """Start ``holdfast`` with these arguments; its standard output can be read from the process."""
    output, child_output = os.pipe()
    status, child_status = os.pipe()
    request = json.dumps([arguments, environment]).encode()
    try:
        socket.send_fds(_launcher(), [request], [child_output, stderr, child_status])
    finally:
        os.close(child_output)
        os.close(child_status)
    return ForkedProcess(output, status)


def run_forked(
    arguments: list[str], environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, like subprocess.run; one that takes too long is killed, as its exit code shows."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = launch(arguments, environment, errors.fileno())
        deadline = threading.Timer(timeout, process.kill)
        deadline.start()
        with process.stdout:
            try:
                output = process.stdout.read()
                code = process.wait(timeout)
            finally:
                deadline.cancel()
                process.kill()
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output, errors.read())


def start_launcher() -> None:
    """Start it now instead of with the first server, for tests that will be in another network namespace by then."""
    _launcher()


@cache
def _launcher() -> socket.socket:
    """The control socket of this test process's launcher, which ends when the socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.server_launcher", str(theirs.fileno())],
            cwd=Path(__file__).parents[2],
            # A checkout that uses the virtual environment of another one names its source in PYTHONPATH.
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
            | {"PYTHONUNBUFFERED": "1"},
            pass_fds=[theirs.fileno()],
        )

    def stop() -> None:
        ours.close()
        process.wait(_START_SECONDS)

    atexit.register(stop)
    return ours


def _import_libraries() -> None:
    """All that a server with the test providers imports before its first turn."""
    import holdfast.adapters.models.pydantic_ai.unsupported_settings
    import holdfast.adapters.models.pydantic_ai.wires.anthropic_messages
    import holdfast.adapters.models.pydantic_ai.wires.openai_chat
    import holdfast.adapters.models.pydantic_ai.wires.openai_responses
    import holdfast.cli.api
    import holdfast.cli.server  # noqa: F401 - imported to be there when a server is forked


def _serve(control: socket.socket) -> None:
    _import_libraries()
    # Else a forked process would walk all of this when it ends, which takes a second.
    gc.freeze()
    # Watchers are reaped by the system.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 3)
        if not request:
            return
        if os.fork() == 0:
            control.close()
            _watch(request, *descriptors)
        for fd in descriptors:
            os.close(fd)


def _watch(request: bytes, output: int, errors: int, status: int) -> NoReturn:
    """Fork the server, tell its pid, wait for its end and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    server = os.fork()
    if server == 0:
        os.close(status)
        _become_server(request, output, errors)
    os.close(output)
    os.close(errors)
    os.write(status, server.to_bytes(4, signed=True))
    _, ended = os.waitpid(server, 0)
    with suppress(BrokenPipeError):
        os.write(status, os.waitstatus_to_exitcode(ended).to_bytes(4, signed=True))
    os._exit(0)


def _become_server(request: bytes, output: int, errors: int) -> NoReturn:
    from holdfast.cli.main import app

    arguments, environment = json.loads(request)
    if (seconds := environment.pop(CLOCK_OFFSET, None)) is not None:
        shift_clock(float(seconds))
    if (path := environment.pop(NAMESPACE, None)) is not None:
        move_to_namespace(path)
    for source, target in ((output, 1), (errors, 2)):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["holdfast", *arguments]
    app()
    sys.exit()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
