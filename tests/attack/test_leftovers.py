"""What tools leave behind: huge folders, too many files, and processes whose server was killed. Nothing stays."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from tests.support.server_process import ServerProcess
from tests.support.tool_gate import ToolGate
from tests.support.waiting import WAIT_SECONDS, eventually
from tests.support.wire_server import connect_plainly

from holdfast.adapters.processes import read_process
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.leftovers import kill_sessions, sweep_leftovers
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

if TYPE_CHECKING:
    from tests.support.sandbox_host import Attacked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Only Linux can adopt orphans."),
]


# Some file systems take milliseconds to remove one folder.
REMOVAL_SECONDS = 5 * WAIT_SECONDS
LIMITS = SandboxLimits(file_bytes=16 * 1024**2, folder_bytes=8 * 1024**2, folder_files=2000)


def call(source: str, **arguments: Any) -> SandboxCall:
    return SandboxCall(
        source=textwrap.dedent(source),
        function="tool",
        arguments=arguments,
        timeout_seconds=3 * WAIT_SECONDS,
        env={},
    )


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of calls are."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
async def sandbox(
    temporary: Path, request: pytest.FixtureRequest
) -> AsyncIterator[SubprocessSandbox]:
    made = SubprocessSandbox(limits=getattr(request, "param", None))
    yield made
    await made.close()
    assert entries(temporary) == []


async def run(sandbox: SubprocessSandbox, source: str) -> SandboxResult:
    async with asyncio.timeout(4 * WAIT_SECONDS):
        return await sandbox.run(call(source))


DEEP = """
import os
def tool():
    for _ in range(3000):
        os.mkdir("deeper")
        os.chdir("deeper")
    return "made"
"""

DEEP_BELOW = DEEP.replace("    for", "    top = os.getcwd()\n    for").replace('"made"', "top")

UNREADABLE = """
import os
def tool():
    os.makedirs("a/b/c")
    for path in ("a/b/c", "a/b", "a", "."):
        os.chmod(path, 0)
    return "made"
"""

MANY = """
def tool():
    for number in range(10_000):
        open(str(number), "w").close()
    return "made"
"""


@pytest.mark.parametrize("source", [DEEP, UNREADABLE, MANY], ids=["deep", "unreadable", "many"])
async def test_the_folder_of_a_call_is_removed(
    sandbox: SubprocessSandbox, temporary: Path, source: str
) -> None:
    result = await run(sandbox, source)
    assert (result.status, result.value) == ("finished", "made")
    (root,) = entries(temporary)
    await eventually(lambda: entries(root) == [], seconds=REMOVAL_SECONDS)


async def test_a_deep_folder_is_removed_whoever_the_tool_runs_as(attacked: "Attacked") -> None:
    folder = attacked.host.run(attacked.level, DEEP_BELOW)
    # An isolated call takes its /tmp with it.
    assert folder == "/tmp" if attacked.level == "isolated" else "holdfast-tools-" in folder
    await eventually(
        lambda: folder == "/tmp" or not os.path.lexists(folder), seconds=REMOVAL_SECONDS
    )


ONE_LARGE_FILE = """
import time
def tool():
    with open("large", "wb") as file:
        file.write(bytes(10 * 1024**2))
    time.sleep(60)
"""

MANY_DEEP_FILES = """
import os, time
def tool():
    for _ in range(150):
        os.mkdir("deeper")
        os.chdir("deeper")
    for number in range(2000):
        open(str(number), "w").close()
    time.sleep(60)
"""

SPARSE_AND_SMALL = """
import time
def tool():
    with open("sparse", "wb") as file:
        file.truncate(15 * 1024**2)
    for number in range(500):
        open(str(number), "w").close()
    time.sleep(1)
    return "made"
"""


@pytest.mark.parametrize("sandbox", [LIMITS], ids=["limited"], indirect=True)
@pytest.mark.parametrize(
    ("source", "error"),
    [
        (ONE_LARGE_FILE, "The tool's files took more than 8388608 bytes and it was killed."),
        (MANY_DEEP_FILES, "The tool made more than 2000 files and was killed."),
        (SPARSE_AND_SMALL, None),
    ],
    ids=["bytes", "files", "little"],
)
async def test_the_folder_of_a_call_is_limited(
    sandbox: SubprocessSandbox, source: str, error: str | None
) -> None:
    result = await run(sandbox, source)
    assert (result.status, result.error) == ("failed" if error else "finished", error)


HANG = """
import os, socket
def tool(gate):
    waiting = socket.create_connection(("127.0.0.1", gate))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            waiting.sendall(b"%d " % os.getpid())
    else:
        waiting.sendall(b"%d " % os.getpid())
    waiting.recv(1)
    os.read(os.pipe()[0], 1)
"""

SERVER = """
import asyncio, json, sys
from pathlib import Path
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.ports.sandbox import SandboxCall
source, gate, records, level = sys.argv[1:]
sandbox = SubprocessSandbox(
    isolation=Isolation(network=True) if level == "isolated" else None,
    record=ToolRecord(Path(records)),
)
call = SandboxCall(
    source=source, function="tool", arguments={"gate": int(gate)}, timeout_seconds=600, env={}
)
asyncio.run(sandbox.run(call))
"""


class HangingTool:
    """A server with one tool that hangs, and the connection that stays open as long as a process of the tool lives."""

    def __init__(self, folder: Path, level: str) -> None:
        self.records = folder / "records"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._gate = ToolGate()
        arguments = [HANG, str(self._gate.port), str(self.records), level]
        self.server = psutil.Popen(
            [sys.executable, "-c", SERVER, *arguments],
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        with self._gate.wait_for_tool() as tool:
            self.tool = tool.dup()
        pids = b""
        while pids.count(b" ") < 2:
            pids += self.tool.recv(100)
        self.pids = [int(pid) for pid in pids.split()]
        (self.parent,) = self.server.children()
        (self.fork_server,) = self.parent.children()

    def kill(self, *processes: psutil.Process) -> None:
        """Kill them as if at once: none can react to the end of another."""
        for process in processes:
            process.suspend()
        for process in processes:
            process.kill()

    def wait_for_end(self) -> bool:
        """Whether the last process of the tool ends soon."""
        self.tool.settimeout(WAIT_SECONDS)
        return self.tool.recv(1) == b""

    def close(self) -> None:
        self._gate.close()
        self.tool.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            self.server.kill()
        self.server.wait(WAIT_SECONDS)


@pytest.fixture
def hanging_tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HangingTool]:
    level = getattr(request, "param", "plain")
    if level == "isolated" and (problem := isolation_problem(Isolation(network=True))):
        pytest.skip(problem)
    made = HangingTool(tmp_path, level)
    yield made
    made.close()


@pytest.mark.parametrize("hanging_tool", ["plain", "isolated"], indirect=True)
async def test_tools_die_with_their_server_and_fork_server(hanging_tool: HangingTool) -> None:
    hanging_tool.kill(hanging_tool.server, hanging_tool.fork_server)
    assert hanging_tool.wait_for_end()
    await eventually(lambda: entries(hanging_tool.temporary) == [])
    await eventually(lambda: not hanging_tool.parent.is_running())


@pytest.mark.parametrize("hanging_tool", ["isolated"], indirect=True)
def test_isolated_tools_die_with_everything_that_started_them(hanging_tool: HangingTool) -> None:
    hanging_tool.kill(hanging_tool.server, hanging_tool.parent)
    assert hanging_tool.wait_for_end()


async def test_a_fork_server_ends_with_the_process_that_watches_it(
    hanging_tool: HangingTool,
) -> None:
    hanging_tool.kill(hanging_tool.parent)
    assert hanging_tool.wait_for_end()
    await eventually(lambda: not hanging_tool.fork_server.is_running())


def test_the_next_start_removes_what_is_left_if_all_were_killed(hanging_tool: HangingTool) -> None:
    assert not sweep_leftovers(hanging_tool.records)  # the server lives
    hanging_tool.kill(hanging_tool.server, hanging_tool.parent, hanging_tool.fork_server)
    hanging_tool.server.wait(WAIT_SECONDS)
    assert all(psutil.pid_exists(pid) for pid in hanging_tool.pids)

    assert sweep_leftovers(hanging_tool.records)

    assert hanging_tool.wait_for_end()
    assert entries(hanging_tool.temporary) == []
    assert entries(hanging_tool.records) == []
    assert not sweep_leftovers(hanging_tool.records)


RUN_HANGING = """
import os, socket
def tool(gate: int) -> str:
    '''Hang.

    Args:
        gate: Where to say so.
    '''
    socket.create_connection(("127.0.0.1", gate)).recv(1)
    return os.read(os.pipe()[0], 1)
"""


def test_a_server_sweeps_when_it_starts(tmp_path: Path) -> None:
    server = ServerProcess.start(tmp_path)
    with ToolGate() as gate, ThreadPoolExecutor(1) as pool:
        body = {"source_code": RUN_HANGING, "args": {"gate": gate.port}}
        with connect_plainly(server.address) as http:
            asking = pool.submit(http.post, "/v1/tools/run", json=body)
            with gate.wait_for_tool() as tool:
                _kill_with_fork_server(server)
                assert isinstance(asking.exception(WAIT_SECONDS), httpx.HTTPError)
                next_server = ServerProcess.start(tmp_path)
                next_server.stop()
                assert tool.recv(1) == b""
    assert "tools.leftovers_removed" in next_server.log


def _kill_with_fork_server(server: ServerProcess) -> None:
    """Kill the server, its fork server and the process that watches that, none of which can react."""
    (watching,) = psutil.Process(server.pid).children()
    processes = [watching, *watching.children()]
    for process in processes:
        process.suspend()
    server.kill()
    for process in processes:
        process.kill()


def test_a_process_is_never_killed_for_its_number_alone() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as other:
        facts = read_process(other.pid)
        assert facts is not None
        # The right time, but no tool; and the session of this very test, at another time.
        assert kill_sessions({other.pid: facts.started_at_tick}) == set()
        assert kill_sessions({os.getsid(0): 2**62}) == set()
        assert other.poll() is None
