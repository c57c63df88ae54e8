"""MCP servers from npm, installed once for all test processes: exactly the versions of ``npm/package-lock.json``."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]  # it brings no types
from tests.support.waiting import WAIT_SECONDS, try_until_done

NPM_SECONDS: Final = 300
"""How long a test may take that installs them first."""

_INSTALL_SECONDS: Final = 240.0
_NEEDED: Final = ("node", "npm")
_FILES: Final = Path(__file__).with_name("npm")
# Not in a folder of the tests: MCP servers may run as another user, who must be able to read it.
_CACHE: Final = Path(tempfile.gettempdir())


def npm_problem() -> str | None:
    """Why there are no such servers here; None if there are."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    return f"{' and '.join(missing)} of Node is not installed." if missing else None


class NpmServers:
    """The programs, each to be started by ``node``."""

    def __init__(self, folder: Path) -> None:
        modules = folder / "node_modules" / "@modelcontextprotocol"
        self.everything = str(modules / "server-everything" / "dist" / "index.js")
        self.filesystem = str(modules / "server-filesystem" / "dist" / "index.js")


def install_npm_servers() -> NpmServers:
    """Fails if npm does: a machine with Node can run these tests."""
    lock = (_FILES / "package-lock.json").read_bytes()
    name = f"holdfast-npm-{os.getuid()}-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder = _CACHE / name
    folder.mkdir(mode=0o755, exist_ok=True)
    facts = folder.lstat()
    assert facts.st_uid == os.getuid(), f"{folder} belongs to another user"
    mark = folder / "complete"
    with (folder / "lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not mark.exists():
            _install(folder)
            mark.touch()
    return NpmServers(folder)


def _install(folder: Path) -> None:
    for path in _FILES.iterdir():
        shutil.copy(path, folder)
    options = ["--ignore-scripts", "--no-audit", "--no-fund"]
    installed = subprocess.run(
        ["npm", "ci", "--prefix", str(folder), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        umask=0o022,
        check=False,
    )
    assert installed.returncode == 0, f"npm cannot install the servers: {installed.stderr[-2000:]}"


@contextmanager
def run_over_http(program: str) -> Iterator[str]:
    """The server, over streamable HTTP; its address."""
    with subprocess.Popen(
        ["node", program, "streamableHttp"],
        env={**os.environ, "PORT": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            port = try_until_done(lambda: _find_port(process.pid), seconds=WAIT_SECONDS)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def _find_port(pid: int) -> int | None:
    """The port that it listens on: it does not say which one it got."""
    listening = [
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    return listening[0] if listening else None
