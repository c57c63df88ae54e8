"""Tools that use the API of a server beside their own: another process that accepts from the same socket, or another
server of the same database. It has no password, does not know them and refuses them all the same."""

import asyncio
import socket
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_connections import ProcToolConnections
from holdfast.adapters.sandbox.tool_processes import ToolProcesses
from holdfast.ports.sandbox import SandboxCall
from holdfast.ports.tool_connections import Connection

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Only Linux tells whose a connection is."),
]

CONNECT = """
import socket
def tool(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
"""

START_A_PROGRAM = """
import subprocess, sys
def tool(port):
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    subprocess.run([sys.executable, "-I", "-c", code, str(port)], start_new_session=True)
"""

LOWER_ITS_LIMITS = """
import resource, socket
def tool(port):
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        for wanted in ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (2**29, 2**29)):
            try:
                resource.setrlimit(kind, wanted)
            except (OSError, ValueError):
                pass
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(1)
"""

PASS_ON = """
import os, socket
def tool(port):
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        if os.fork() == 0:
            _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
            socket.socket(fileno=fds[0]).recv(1)
        os._exit(0)
    os.wait()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        socket.send_fds(ours, [b"x"], [connection.fileno()])
    os.read(os.pipe()[0], 1)
"""

EXIT_AT_ONCE = """
import os, socket
def tool(port):
    connection = socket.create_connection(("127.0.0.1", port))
    os._exit(0)
"""

ATTACKS = {
    "connect": CONNECT,
    "start a program": START_A_PROGRAM,
    "lower its limits": LOWER_ITS_LIMITS,
    "pass on": PASS_ON,
    "exit at once": EXIT_AT_ONCE,
}


@pytest.fixture(params=["plain", "isolated"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[SubprocessSandbox]:
    """That of the other process."""
    isolation = Isolation(network=True) if request.param == "isolated" else None
    if isolation is not None and (problem := isolation_problem(isolation)):
        pytest.skip(problem)
    made = SubprocessSandbox(isolation=isolation)
    yield made
    await made.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.setblocking(False)
        yield opened


async def may_be_tool(accepted: socket.socket, tool_uids: frozenset[int]) -> bool:
    """What a process says that has run no tool itself."""
    connections = ProcToolConnections(ToolProcesses(), tool_uids, is_alone=False)
    try:
        return await connections.may_be_tool(
            Connection(accepted.getpeername(), accepted.getsockname(), time.monotonic())
        )
    finally:
        connections.close()


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
async def test_a_tool_of_another_process_is_refused(
    sandbox: SubprocessSandbox, listener: socket.socket, source: str
) -> None:
    call = SandboxCall(
        source=textwrap.dedent(source),
        function="tool",
        arguments={"port": listener.getsockname()[1]},
        timeout_seconds=3 * WAIT_SECONDS,
        env={},
    )
    async with asyncio.timeout(WAIT_SECONDS):
        running = asyncio.create_task(sandbox.run(call))
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        with accepted:
            assert await may_be_tool(accepted, sandbox.tool_uids)
        running.cancel()
        await asyncio.wait({running})


async def test_another_program_is_answered(
    sandbox: SubprocessSandbox, listener: socket.socket
) -> None:
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
    command = [sys.executable, "-I", "-c", code, str(listener.getsockname()[1])]
    program = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            with accepted:
                assert not await may_be_tool(accepted, sandbox.tool_uids)
    finally:
        program.kill()
        await program.wait()
