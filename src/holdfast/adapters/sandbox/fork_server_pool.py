"""A pool of fork servers, one per set of requirements: started when needed, stopped when idle or too many.

Starts the processes that run `fork_server.py`.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.sandbox.folder_removal import remove_folder
from holdfast.adapters.sandbox.isolation import (
    Isolation,
    interpreter_paths,
    package_folders,
    source_folder,
)
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.ports.sandbox import SandboxLimits

MAX_WARM_SERVERS: Final = 8
"""How many fork servers for tools with requirements are kept; the one without requirements usually stays for good."""

IDLE_SECONDS: Final = 600.0
"""How long a fork server for tools with requirements stays without a call."""

_STOP_SECONDS: Final = 5.0
_INHERITED_VARIABLES: Final = ("PATH", "LANG", "LANGUAGE", "TZ")
_START_CODE: Final = (
    "import sys; sys.path.append(sys.argv[2])\n"
    "from holdfast.adapters.sandbox.fork_server import main; sys.path.pop(); main()"
)


def inherited_environment() -> dict[str, str]:
    """The environment variables that a tool inherits from the server: never a secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED_VARIABLES or name.startswith("LC_")
    }


@dataclass(slots=True)
class ForkServerProcess:
    """A fork server. When its control socket closes, it kills its forks, removes its folder and exits."""

    process: subprocess.Popen[bytes]
    """Its parent: the process that watches it, or bubblewrap."""
    control: socket.socket
    root: str | None
    """Its folder on this machine; None: its folders are in its own namespaces."""
    environment: Path | None
    calls: int = 0
    idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None and not self._has_closed_control()

    def _has_closed_control(self) -> bool:
        try:
            return not self.control.recv(1, socket.MSG_PEEK)  # it never sends anything
        except BlockingIOError:
            return False
        except OSError:
            return True

    def kill_orphans(self, pid: int) -> None:
        """Kill a call's process group after the fork server has died. Isolated calls have died with it."""
        if self.root is None:
            return
        # The process may not have its group yet. macOS raises PermissionError if only zombies are left.
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(pid, signal.SIGKILL)

    def stop(self) -> None:
        self.control.close()
        for force in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(_STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                force()
        self.process.wait()
        if self.root is not None:
            remove_folder(self.root)  # if the process could not do it itself


@dataclass(slots=True)
class ForkServerPool:
    limits: SandboxLimits
    isolation: Isolation | None
    hidden: tuple[Path, ...] = ()
    """Paths that are hidden from plain tools; isolated tools do not see them anyway."""
    writable: tuple[Path, ...] = ()
    """Where plain tools may write besides their folder. What isolated tools may write to is part of the isolation."""
    user: ToolUser | None = None
    """Who plain tools run as, if that is possible; None: who the server runs as."""
    idle_seconds: float = IDLE_SECONDS
    max_servers: int = MAX_WARM_SERVERS
    record: ToolRecord | None = None
    """Where the next start finds the folders, should all processes be killed at once."""
    stops_when_idle: bool = False
    """Whether the fork server for tools without requirements is stopped when idle, too."""
    # Ordered by last use, the oldest first.
    _servers: dict[Path | None, ForkServerProcess] = field(default_factory=dict)
    _stopping: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.contextmanager
    def borrow(self, environment: Path | None) -> Iterator[ForkServerProcess]:
        """The fork server for this environment (None: the server's own). One that died is replaced."""
        server = self._servers.pop(environment, None)
        if server is not None and not server.is_alive:
            self._stop_in_background(server)
            server = None
        if server is None:
            self._make_room(environment)
            server = self._start(environment)
        self._servers[environment] = server
        server.calls += 1
        if server.idle_timer is not None:
            server.idle_timer.cancel()
        try:
            yield server
        finally:
            server.calls -= 1
            if server.calls == 0 and (environment is not None or self.stops_when_idle):
                loop = asyncio.get_running_loop()
                server.idle_timer = loop.call_later(
                    self.idle_seconds, self._stop_in_background, server
                )

    async def close(self) -> None:
        for server in list(self._servers.values()):
            self._stop_in_background(server)
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _make_room(self, environment: Path | None) -> None:
        if environment is None:
            return
        kept = [server for server in self._servers.values() if server.environment is not None]
        for server in [server for server in kept if server.calls == 0]:
            if len(kept) < self.max_servers:
                break
            kept.remove(server)
            self._stop_in_background(server)

    def _stop_in_background(self, server: ForkServerProcess) -> None:
        if server.idle_timer is not None:
            server.idle_timer.cancel()
        if self._servers.get(server.environment) is server:
            del self._servers[server.environment]
        stopping = asyncio.get_running_loop().create_task(self._stop(server))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def _stop(self, server: ForkServerProcess) -> None:
        await asyncio.to_thread(server.stop)
        if self.record is not None and server.root is not None:
            self.record.remove_root(server.root)

    def _make_root(self) -> str:
        root = tempfile.mkdtemp(prefix="holdfast-tools-")
        if self.record is not None:
            self.record.add_root(root)
        return root

    def _start(self, environment: Path | None) -> ForkServerProcess:
        root = self._make_root() if self.isolation is None else None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        visible = [] if environment is None else [str(environment)]
        with theirs:
            options = {
                **asdict(self.limits),
                "control": theirs.fileno(),
                "root": root,
                "hidden": [str(path) for path in self.hidden],
                "writable": [str(path) for path in self.writable if path.exists()],
                "user": self.user,
                "needed": [*interpreter_paths(), *visible],
                "own_network": self.isolation is not None and not self.isolation.network,
                "environment": None if environment is None else _environment_options(environment),
            }
            del options["output_bytes"]  # the pool's side counts the output
            # Our own interpreter, not that of the environment, which its packages may have changed; and -S (no site),
            # so that none of their code runs at the start.
            bare = [] if environment is None else ["-S"]
            process = subprocess.Popen(  # noqa: S603 - our own module, run by our own interpreter
                [
                    *([] if self.isolation is None else self.isolation.bwrap_command(visible)),
                    *(sys.executable, "-I", *bare, "-X", "utf8", "-c", _START_CODE),
                    *(json.dumps(options), str(source_folder())),
                ],
                pass_fds=[theirs.fileno()],
                env=inherited_environment(),
                cwd="/",
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return ForkServerProcess(process, ours, root, environment)


def _environment_options(environment: Path) -> dict[str, Any]:
    """The fields of `child.Environment`."""
    base = {"base": str(environment), "platbase": str(environment)}
    folders = (sysconfig.get_path(kind, "venv", base) for kind in ("purelib", "platlib"))
    return {
        "prefix": str(environment),
        "packages": list(dict.fromkeys(folders)),
        "extra_paths": [*package_folders(), str(source_folder())],
    }
