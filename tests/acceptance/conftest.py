"""Commands and servers: forked with their libraries loaded, or executed as an operator does (``run_…command``)."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.server_launcher import run_forked
from tests.support.server_process import (
    HOLDFAST,
    START_SECONDS,
    Command,
    ServerProcess,
    StartServer,
    clean_environment,
)


@pytest.fixture
def holdfast(tmp_path: Path) -> Command:
    """Run a command to its end; its home is the test's own folder."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_forked([*arguments], clean_environment(tmp_path, **variables), START_SECONDS)

    return run


@pytest.fixture
def run_command(tmp_path: Path) -> Command:
    """The same with the command itself and all that it imports."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HOLDFAST, *arguments],
            env=clean_environment(tmp_path, **variables),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers; each is gone when the test ends."""
    yield from _start_servers(ServerProcess.start, tmp_path)


@pytest.fixture
def run_server_command(tmp_path: Path) -> Iterator[StartServer]:
    """The same by the command, for tests of the command itself."""
    yield from _start_servers(ServerProcess.run_command, tmp_path)


def _start_servers(start: Callable[..., ServerProcess], home: Path) -> Iterator[StartServer]:
    servers: list[ServerProcess] = []

    def start_one(*options: str, **variables: str) -> ServerProcess:
        servers.append(start(home, *options, **variables))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()
