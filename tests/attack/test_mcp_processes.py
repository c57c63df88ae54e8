"""What MCP servers that are programs leave behind when their owner is killed, and what tools can learn of them."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from tests.support.ordinary_user import as_ordinary_user, ordinary_user_problem
from tests.support.stdio_programs import Talk, answering_endpoint
from tests.support.tool_gate import ToolGate
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.landlock import is_supported
from holdfast.adapters.sandbox.leftovers import sweep_leftovers
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.ports.sandbox import SandboxCall

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Only Linux can adopt orphans."),
]

# It ignores all requests to end, and so does its child, which tries to leave the process group.
FAMILY = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
waiting = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        waiting.sendall(b"child ")
else:
    waiting.sendall(b"parent ")
while True:
    time.sleep(1)
"""

OWNER = """
import asyncio, sys
from pathlib import Path
from tests.support.stdio_programs import Talk, python_endpoint
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox

async def main():
    source, gate, records, level = sys.argv[1:]
    sandbox = SubprocessSandbox(
        isolation=Isolation(network=True) if level == "isolated" else None,
        record=ToolRecord(Path(records)),
    )
    servers = StdioServers(sandbox, max_message_bytes=1000)
    async with servers.open(python_endpoint(source, gate)) as streams:
        await Talk(streams).wait_for_failure()

asyncio.run(main())
"""


class Owner:
    """A process that owns an MCP server, and the connection that stays open as long as a process of that server lives."""

    def __init__(self, folder: Path, level: str) -> None:
        self.records = folder / "records"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._gate = ToolGate()
        arguments = [FAMILY, str(self._gate.port), str(self.records), level]
        self.process = psutil.Popen(
            [sys.executable, "-c", OWNER, *arguments],
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        with self._gate.wait_for_tool() as family:
            self.family: socket.socket = family.dup()
        said = b""
        while said.count(b" ") < 2:
            said += self.family.recv(100)
        (self.parent,) = self.process.children()
        (self.fork_server,) = self.parent.children()

    def kill(self, *processes: psutil.Process) -> None:
        """Kill them as if at once: none can react to the end of another."""
        for process in processes:
            process.suspend()
        for process in processes:
            process.kill()
        self.process.wait(WAIT_SECONDS)

    def wait_for_end(self) -> bool:
        """Whether the last process of the family ends soon."""
        self.family.settimeout(WAIT_SECONDS)
        return self.family.recv(1) == b""

    def close(self) -> None:
        self._gate.close()
        self.family.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.process.wait(WAIT_SECONDS)


@pytest.fixture
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Owner]:
    level = getattr(request, "param", "plain")
    if level == "isolated" and (problem := isolation_problem(Isolation(network=True))):
        pytest.skip(problem)
    made = Owner(tmp_path, level)
    yield made
    made.close()


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("owner", ["plain", "isolated"], indirect=True)
async def test_it_dies_with_an_owner_that_is_killed(owner: Owner) -> None:
    owner.kill(owner.process)
    assert owner.wait_for_end()
    await eventually(lambda: entries(owner.temporary) == [])
    await eventually(lambda: not owner.parent.is_running())


@pytest.mark.parametrize("owner", ["plain", "isolated"], indirect=True)
async def test_it_dies_with_an_owner_whose_fork_server_is_killed_too(owner: Owner) -> None:
    owner.kill(owner.process, owner.fork_server)
    assert owner.wait_for_end()
    await eventually(lambda: entries(owner.temporary) == [])


async def test_the_next_start_removes_it_if_everything_was_killed_at_once(owner: Owner) -> None:
    assert not sweep_leftovers(owner.records)  # the owner lives
    owner.kill(owner.process, owner.parent, owner.fork_server)
    assert sweep_leftovers(owner.records)
    assert owner.wait_for_end()
    assert entries(owner.temporary) == []
    assert not sweep_leftovers(owner.records)


SPY = """
def tool(pid: int):
    found = {}
    for name in ("environ", "mem", "maps", "fd"):
        try:
            if name == "fd":
                import os
                found[name] = str([os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")])
            else:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    found[name] = str(file.read(10_000))
        except OSError as error:
            found[name] = type(error).__name__
    return found
"""


@pytest.mark.skipif(not is_supported(), reason="This kernel has no Landlock.")
async def test_a_tool_cannot_read_the_secrets_of_an_mcp_server() -> None:
    """They run as the same user."""
    user = ToolUser.find("nobody") if os.geteuid() == 0 else None
    sandbox = SubprocessSandbox(user=user)
    servers = StdioServers(sandbox, max_message_bytes=1000)
    endpoint = answering_endpoint(
        "def answer(method, params): return {'pid': os.getpid()}", KEY="swordfish"
    )
    async with asyncio.timeout(2 * WAIT_SECONDS), servers.open(endpoint) as streams:
        pid = (await Talk(streams).ask())["pid"]
        call = SandboxCall(
            source=SPY,
            function="tool",
            arguments={"pid": pid},
            timeout_seconds=WAIT_SECONDS,
            env={},
        )
        result = await sandbox.run(call)
    await sandbox.close()
    assert result.status == "finished", result.error
    assert "swordfish" not in json.dumps(result.value)
    assert result.value["environ"] == "PermissionError"


FILE_TIMES = """
import asyncio
from pathlib import Path
from tests.support.ordinary_user import as_ordinary_user, ordinary_user_problem
from tests.support.stdio_programs import Talk, answering_endpoint
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox

SOURCE = '''
import os, tempfile
lock = tempfile.mkdtemp()
os.utime(lock, (1000, 1000))

def answer(method, params):
    return {"changed_at": os.stat(lock).st_mtime}
'''

async def main():
    sandbox = SubprocessSandbox(hidden=(Path("home"),))
    servers = StdioServers(sandbox, max_message_bytes=1000)
    async with servers.open(answering_endpoint(SOURCE)) as streams:
        print(await Talk(streams).ask())
    await sandbox.close()

asyncio.run(main())
"""


def test_a_program_may_set_the_time_of_its_files_also_that_of_an_ordinary_user(
    tmp_path: Path,
) -> None:
    """npx holds its lock so. A tool of an ordinary user may not: it could do it with files that it cannot open."""
    if (problem := ordinary_user_problem(tmp_path)) is not None:
        pytest.skip(problem)
    command = as_ordinary_user(tmp_path, sys.executable, "-c", FILE_TIMES)

    completed = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS * 4, check=True
    )

    assert completed.stdout == "{'changed_at': 1000.0}\n"
