"""A process that runs tools as a server does, to be attacked by them: as root, or as an ordinary user.

The tests talk to it by lines of JSON. ``python -m tests.support.sandbox_host`` is the process.
"""

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.sandbox.confinement import hide_memory
from holdfast.adapters.sandbox.isolation import Isolation, interpreter_paths, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.ports.sandbox import SandboxCall

ROOT: Final = Path(__file__).parents[2]
ORDINARY_USER: Final = ToolUser(54321, 54321)
LEVELS: Final = ("plain", "isolated")
STOP_SECONDS: Final = 10.0


class SandboxHost:
    """The process, and the files that it owns: ``home`` with its database, ``shared`` for tools, ``sockets``."""

    def __init__(self, folder: Path, user: ToolUser | None) -> None:
        self.folder = folder
        options = json.dumps({"folder": str(folder), "user": user})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.sandbox_host", options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self._read_answer()
        self.problem: str | None = ready["problem"]
        self.isolation_problem: str | None = ready["isolation_problem"]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def database(self) -> Path:
        return self.home / "holdfast.db"

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def sockets(self) -> Path:
        return self.folder / "sockets"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def threads(self) -> list[int]:
        return [int(path.name) for path in Path(f"/proc/{self.pid}/task").iterdir()]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, level: str, source: str, **arguments: Any) -> Any:
        """The value that the tool returns."""
        answer = self.call(level, source, **arguments)
        assert answer["status"] == "finished", answer
        return answer["value"]

    def call(self, level: str, source: str, **arguments: Any) -> Any:
        request = {"level": level, "source": textwrap.dedent(source), "arguments": arguments}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> Any:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"The host does not answer; its exit code is {self._process.poll()}."
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            if self.is_alive:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()


class Attacked(NamedTuple):
    """A host, and the level at which the tool runs that attacks it."""

    host: SandboxHost
    level: str


def _become_ordinary(user: ToolUser, folder: Path) -> str | None:
    if user.become(needed=[*interpreter_paths(), str(ROOT)], writable=(), folder=str(folder)):
        return None
    return "This process may not become an ordinary user that can reach Python."


def _make_files(folder: Path) -> list[socket.socket]:
    """The files of a server, and the sockets of another program of its user."""
    for name in ("home", "shared", "sockets"):
        (folder / name).mkdir()
    (folder / "home").chmod(0o700)
    (folder / "shared").chmod(0o777)
    (folder / "home" / "holdfast.db").write_bytes(b"rows")
    (folder / "home" / "holdfast.db").chmod(0o600)
    places: list[tuple[int, str]] = [
        (socket.SOCK_STREAM, f"{folder}/sockets/stream"),
        (socket.SOCK_DGRAM, f"{folder}/sockets/datagram"),
        (socket.SOCK_STREAM, f"\0holdfast-{folder.name}"),
    ]
    opened = [socket.socket(socket.AF_UNIX, kind) for kind, _ in places]
    for each, (kind, place) in zip(opened, places, strict=True):
        each.bind(place)
        if kind == socket.SOCK_STREAM:
            each.listen()
    return opened


def _write_line(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _serve(sandboxes: dict[str, SubprocessSandbox]) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        result = await sandboxes[request["level"]].run(
            SandboxCall(
                source=request["source"],
                function="tool",
                arguments=request["arguments"],
                timeout_seconds=WAIT_SECONDS / 2,
                env={},
            )
        )
        answer = {"status": result.status, "value": result.value, "error": result.error}
        _write_line(answer)
    for sandbox in sandboxes.values():
        await sandbox.close()


def main() -> None:
    options = json.loads(sys.argv[1])
    folder = Path(options["folder"])
    user = None if options["user"] is None else ToolUser(*options["user"])
    problem = None if user is None else _become_ordinary(user, folder)
    hide_memory()
    home, shared = folder / "home", folder / "shared"
    isolation = Isolation(network=False, hidden=(str(home),), writable=(str(shared),))
    sockets = _make_files(folder) if problem is None else []
    why_not = isolation_problem(isolation) if problem is None else problem
    _write_line({"problem": problem, "isolation_problem": why_not})
    tool_user = ToolUser.find("nobody") if os.geteuid() == 0 else None
    plain = SubprocessSandbox(hidden=(home,), writable=(shared,), user=tool_user)
    asyncio.run(_serve({"plain": plain, "isolated": SubprocessSandbox(isolation=isolation)}))
    for each in sockets:
        each.close()


if __name__ == "__main__":
    main()
