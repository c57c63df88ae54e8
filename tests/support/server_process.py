"""A real server process, started as an operator starts it. Whoever starts one stops it."""

import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Self

from tests.support.ordinary_user import as_ordinary_user
from tests.support.sandbox_host import ROOT
from tests.support.server_launcher import ForkedProcess, launch

HOLDFAST = Path(sys.executable).with_name("holdfast")
# Far more than a start or a stop takes, also on a machine that has other things to do.
START_SECONDS = 60.0
STOP_SECONDS = 30.0

# The greeting ends with the example, and the example with this line.
LAST_LINE = (
    files("holdfast.cli")
    .joinpath("example.py.txt")
    .read_text(encoding="utf-8")
    .splitlines(keepends=True)[-1]
)


def clean_environment(home: Path, **variables: str) -> dict[str, str]:
    """What a process needs, without the settings of whoever runs the tests."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return kept | {"HOME": str(home), "PYTHONUNBUFFERED": "1"} | variables


StartProcess = Callable[[list[str], dict[str, str], int], "subprocess.Popen[str] | ForkedProcess"]


def _execute(
    arguments: list[str], environment: dict[str, str], stderr: int
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [HOLDFAST, *arguments], env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def _execute_as_ordinary_user(
    arguments: list[str], environment: dict[str, str], stderr: int
) -> "subprocess.Popen[str]":
    command = as_ordinary_user(Path(environment["HOME"]), str(HOLDFAST), *arguments)
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


class ServerProcess:
    """A server that has said where it listens. Its data is in the folder ``.holdfast`` of ``home``; its tools may write to
    ``tool_files``."""

    def __init__(
        self,
        start_process: StartProcess,
        home: Path,
        options: tuple[str, ...],
        variables: dict[str, str],
    ) -> None:
        self.home = home
        # Tools may run as another user than the tests.
        self.tool_files = home / "tool-files"
        self.tool_files.mkdir(exist_ok=True)
        self.tool_files.chmod(0o777)
        defaults = {"HOLDFAST_PORT": "0", "HOLDFAST_SANDBOX_WRITABLE": str(self.tool_files)}
        # A file takes any amount of text; a pipe that nobody reads would stop the server.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - read for as long as somebody asks for the log
        self._process = start_process(
            ["server", *options],
            clean_environment(home, **{**defaults, **variables}),
            self._stderr.fileno(),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.greeting = ""

    @classmethod
    def start(cls, home: Path, *options: str, **variables: str) -> Self:
        """Start a server and wait until it is ready; AssertionError, with its words, if it ends before."""
        return cls(launch, home, options, variables)._wait_until_ready()

    @classmethod
    def run_command(cls, home: Path, *options: str, **variables: str) -> Self:
        """The same by the command ``holdfast server``, with all that it imports."""
        return cls(_execute, home, options, variables)._wait_until_ready()

    @classmethod
    def run_as_ordinary_user(cls, home: Path, *options: str, **variables: str) -> Self:
        """The same as an ordinary user, for tests that run as root. The home becomes that user's."""
        return cls(_execute_as_ordinary_user, home, options, variables)._wait_until_ready()

    @property
    def address(self) -> str:
        """The first line of a server's output names its address; scripts may rely on it."""
        found = re.search(r"http://\S+:\d+", self.greeting.splitlines()[0])
        assert found, self.greeting
        return found[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it wrote to its standard error so far."""
        fd = self._stderr.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    @property
    def log_bytes(self) -> int:
        return os.fstat(self._stderr.fileno()).st_size

    def stop(self) -> int:
        """Ask it to end, as an operator does; kill it if it does not. Return its exit code."""
        return self._end(self._process.terminate)

    def wait_for_exit(self) -> int:
        """Wait for the end that was asked for already; kill it if it does not come. Return its exit code."""
        return self._end(lambda: None)

    def kill(self) -> int:
        """End it as a power cut does."""
        return self._end(self._process.kill)

    def _end(self, how: Callable[[], None]) -> int:
        how()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _wait_until_ready(self) -> Self:
        try:
            self._wait_for_greeting()
        except BaseException:
            self.kill()
            raise
        return self

    def _wait_for_greeting(self) -> None:
        # A pipe cannot be read with a time limit; a queue can.
        while (line := self._lines.get(timeout=START_SECONDS)) not in ("", LAST_LINE):
            self.greeting += line
        assert line, f"The server ended instead of starting:\n{self.greeting}{self.log}"
        self.greeting += line


StartServer = Callable[..., ServerProcess]


Command = Callable[..., subprocess.CompletedProcess[str]]
