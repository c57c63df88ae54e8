"""MCP servers that are programs: what they see, what they may use, and that nothing of them stays, at each level."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from mcp.client.session import ClientSession
from tests.support.stdio_programs import (
    SDK_SERVER,
    Talk,
    answering_endpoint,
    make_endpoint,
    python_endpoint,
)
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.mcp.failures import TransportFailed
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_processes import may_be_tool_process
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.ports.sandbox import SandboxLimits

pytestmark = pytest.mark.slow

LIMITS: Final = SandboxLimits(
    memory_bytes=256 * 1024**2, processes=12, threads=100, open_files=64, file_bytes=4 * 1024**2
)
MESSAGE_BYTES: Final = 1024**2
ISOLATION: Final = Isolation(network=False)
WHY_NOT_ISOLATED: Final = isolation_problem(ISOLATION)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of processes are."""
    # Those of another user must be able to enter it.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and str(folder) != "/":
            folder.chmod(folder.stat().st_mode | 0o111)
    folder = tmp_path / "temporary"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(params=["plain", "isolated"])
def level(request: pytest.FixtureRequest) -> str:
    if request.param == "isolated" and WHY_NOT_ISOLATED is not None:
        pytest.skip(WHY_NOT_ISOLATED)
    return str(request.param)


@pytest.fixture
async def sandbox(level: str, temporary: Path) -> AsyncIterator[SubprocessSandbox]:
    made = SubprocessSandbox(
        limits=LIMITS,
        isolation=ISOLATION if level == "isolated" else None,
        user=ToolUser.find("nobody") if os.geteuid() == 0 else None,
    )
    yield made
    await eventually(lambda: count_processes(made) == 0)
    await made.close()
    assert entries(temporary) == []


@pytest.fixture
def servers(sandbox: SubprocessSandbox) -> StdioServers:
    return StdioServers(sandbox, max_message_bytes=MESSAGE_BYTES, grace_seconds=WAIT_SECONDS)


@pytest.fixture
def impatient_servers(sandbox: SubprocessSandbox) -> StdioServers:
    """Those that wait for no process."""
    return StdioServers(sandbox, max_message_bytes=MESSAGE_BYTES, grace_seconds=0.0)


only_plain = pytest.mark.parametrize("level", ["plain"], indirect=True)


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def count_descriptors() -> int:
    return psutil.Process().num_fds()  # type: ignore[no-any-return]  # psutil has no types


def count_processes(sandbox: SubprocessSandbox) -> int:
    """All descendants of the fork server, including zombies."""
    return sum(
        len(psutil.Process(server.process.pid).children(recursive=True)) - 1
        for server in sandbox._pool._servers.values()
    )


async def test_a_server_of_the_sdk_is_used_like_any_other(servers: StdioServers) -> None:
    async with (
        asyncio.timeout(3 * WAIT_SECONDS),
        servers.open(python_endpoint(SDK_SERVER)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        listed = await session.list_tools()
        assert [tool.name for tool in listed.tools] == ["add"]
        result = await session.call_tool("add", {"a": 2, "b": 3})
        assert result.structured_content == {"result": 5}


FACTS = """
def answer(method, params):
    import resource
    limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)]
    return {
        "arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(), "uid": os.getuid(),
        "limits": limits, "descriptors": sorted(int(name) for name in os.listdir("/dev/fd")),
        "status": dict(line.split(":", 1) for line in open("/proc/self/status")),
    }
"""


async def test_it_sees_nothing_of_the_servers_environment(
    servers: StdioServers, temporary: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PASSWORD", "swordfish")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "swordfish")
    endpoint = answering_endpoint(FACTS, "one argument", "$HOME", "", TOKEN="mine", HOME="/there")
    async with asyncio.timeout(WAIT_SECONDS), servers.open(endpoint) as streams:
        facts = await Talk(streams).ask()
        folder = Path(facts["folder"])
        assert folder == Path("/tmp") if level == "isolated" else folder.is_relative_to(temporary)

    assert facts["arguments"] == ["one argument", "$HOME", ""]
    environment = facts["environment"]
    assert "swordfish" not in environment.values()
    assert environment.keys() - {"PATH", "LANG", "LANGUAGE", "TZ", "LC_CTYPE", "LC_ALL"} == {
        "HOME",
        "TMPDIR",
        "TOKEN",
    }
    assert (environment["TOKEN"], environment["HOME"]) == ("mine", "/there")
    assert environment["TMPDIR"] == facts["folder"]
    # Standard streams, and the one with which the folder is listed: none of ours.
    assert facts["descriptors"] == [0, 1, 2, 3]


async def test_it_has_the_limits_of_a_tool(servers: StdioServers, level: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(FACTS)) as streams:
        facts = await Talk(streams).ask()
    assert facts["limits"] == [LIMITS.memory_bytes, LIMITS.open_files, LIMITS.file_bytes]
    if level == "plain" and os.geteuid() == 0:
        assert facts["uid"] == ToolUser.find("nobody").uid
    assert facts["status"]["NoNewPrivs"].strip() == "1"


HUNGRY = """
def answer(method, params):
    children = []
    for _ in range(6):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1024) * 1024 * 60)
            import time
            time.sleep(60)
    import time
    time.sleep(60)
"""

BOMB = """
def answer(method, params):
    import time
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(60)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            HUNGRY,
            f"The server used more than {LIMITS.memory_bytes} bytes of memory and was killed.",
        ),
        (BOMB, f"The server started more than {LIMITS.processes} processes and was killed."),
    ],
    ids=["memory", "processes"],
)
async def test_a_server_that_uses_too_much_is_killed_and_this_is_told(
    servers: StdioServers, source: str, reason: str
) -> None:
    async with (
        asyncio.timeout(2 * WAIT_SECONDS),
        servers.open(answering_endpoint(source)) as streams,
    ):
        talk = Talk(streams)
        await talk.send("use")
        failure = await talk.wait_for_failure()
    assert reason in str(failure)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no-such-program"], "No such file or directory."),
        (["/etc"], "Permission denied."),
        (
            [sys.executable, "-c", "import sys; sys.exit('The key is missing')"],
            "The server's process ended with exit code 1. The last line on its stderr: The key is missing",
        ),
        (
            [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"],
            "The server's process was killed by signal 11 (Segmentation fault).",
        ),
    ],
    ids=["missing", "folder", "ends at once", "crashes"],
)
async def test_a_server_that_cannot_be_started_is_explained(
    servers: StdioServers, words: list[str], reason: str
) -> None:
    with pytest.raises(TransportFailed) as caught:
        async with asyncio.timeout(WAIT_SECONDS), servers.open(make_endpoint(*words)) as streams:
            await Talk(streams).ask()
    assert str(caught.value) == reason


async def test_a_session_that_cannot_begin_says_why(servers: StdioServers) -> None:
    """The SDK's own error says only that the connection was closed."""
    endpoint = python_endpoint("import sys; sys.exit('The key is missing')")
    with pytest.raises(TransportFailed, match="The key is missing"):
        async with (
            asyncio.timeout(WAIT_SECONDS),
            servers.open(endpoint) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()


async def test_secrets_are_hidden_in_what_it_says_before_its_end(servers: StdioServers) -> None:
    source = "import os, sys; sys.exit('The key ' + os.environ['KEY'] + ' is wrong')"
    with pytest.raises(TransportFailed) as caught:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            servers.open(python_endpoint(source, KEY="swordfish")) as streams,
        ):
            await Talk(streams).ask()
    assert str(caught.value).endswith("The last line on its stderr: The key ******** is wrong")


GARBAGE = r"""
import os, sys
for garbage in (b"Starting the server ...\n", b"{not json\n", b"\n\r\n", b"\xff\xfe\x00\n", b"[1, 2]\n",
                b'{"jsonrpc": "2.0"}\n', b'"text"\n', bytes(300_000) + b"\n"):
    os.write(1, garbage)
def answer(method, params):
    os.write(1, b"Asked: ...\n")
    return {"one": 1}
"""


@only_plain
async def test_lines_that_are_no_messages_are_skipped(servers: StdioServers) -> None:
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(GARBAGE)) as streams:
        talk = Talk(streams)
        assert await talk.ask() == {"one": 1}
        assert await talk.ask() == {"one": 1}


@only_plain
async def test_a_message_may_come_in_parts_and_with_any_line_end(servers: StdioServers) -> None:
    source = """
    import os, sys, time
    def answer(method, params):
        for part in (b'{"jsonrpc": "2.0", "i', b'd": 1, "result": {"text": "\\xc3', b'\\xa4"}}\\r', b'\\n'):
            os.write(1, part)
            time.sleep(0.05)
        return {"second": True}
    """
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(source)) as streams:
        talk = Talk(streams)
        assert await talk.ask() == {"text": "ä"}
        assert await talk.receive() == {"second": True}


@only_plain
async def test_a_large_message_arrives_whole_and_a_larger_one_ends_the_connection(
    servers: StdioServers,
) -> None:
    source = "def answer(method, params): return {'text': 'x' * params['size']}"
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(source)) as streams:
        talk = Talk(streams)
        size = MESSAGE_BYTES - 100
        assert await talk.ask(size=size) == {"text": "x" * size}
        await talk.send("more", size=10 * MESSAGE_BYTES)
        failure = await talk.wait_for_failure()
    assert str(failure).endswith(f"The server sent a message of more than {MESSAGE_BYTES} bytes.")


@only_plain
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import os\nwhile True: os.write(1, b'x' * 65536)",
            "The server sent a message of more than",
        ),
        (
            "import os\nwhile True: os.write(1, b'no message' * 99 + b'\\n')",
            "to stdout that are no",
        ),
    ],
    ids=["one line", "many lines"],
)
async def test_a_server_that_writes_without_end_stops_nobody_else(
    impatient_servers: StdioServers, source: str, reason: str
) -> None:
    async with (
        asyncio.timeout(WAIT_SECONDS),
        impatient_servers.open(python_endpoint(source)) as streams,
        impatient_servers.open(answering_endpoint()) as others,
    ):
        assert await Talk(others).ask("still there") == {"method": "still there"}
        assert reason in str(await Talk(streams).wait_for_failure())


@only_plain
async def test_a_server_that_fills_its_stderr_is_not_stopped_by_that(servers: StdioServers) -> None:
    source = """
    import os, sys
    def answer(method, params):
        for _ in range(200):
            os.write(2, b"x" * 10_000)
        return {"one": 1}
    """
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(source)) as streams:
        assert await Talk(streams).ask() == {"one": 1}


@only_plain
async def test_a_server_that_dies_during_a_call_ends_the_connection(servers: StdioServers) -> None:
    source = "def answer(method, params): os.write(2, b'Out of ideas\\n'); os._exit(3)"
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(source)) as streams:
        talk = Talk(streams)
        await talk.send("call")
        failure = await talk.wait_for_failure()
    assert str(failure).endswith(
        "The server's process ended with exit code 3. The last line on its stderr: Out of ideas"
    )


@only_plain
async def test_a_server_that_closes_its_stdout_is_ended(impatient_servers: StdioServers) -> None:
    source = "import os, time\nos.close(1)\ntime.sleep(60)"
    async with (
        asyncio.timeout(WAIT_SECONDS),
        impatient_servers.open(python_endpoint(source)) as streams,
    ):
        failure = await Talk(streams).wait_for_failure()
    assert str(failure).endswith("The server has closed its stdout.")


@only_plain
async def test_a_server_that_does_not_read_blocks_only_those_who_ask_it(
    impatient_servers: StdioServers,
) -> None:
    async with (
        asyncio.timeout(WAIT_SECONDS),
        impatient_servers.open(python_endpoint("import time\ntime.sleep(60)")) as streams,
    ):
        talk = Talk(streams)
        await talk.send("first", text="x" * 1024**2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await talk.send("second")


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True))
if os.fork() == 0:
    while True: time.sleep(1)
for line in sys.stdin: print(line, flush=True)
while True: time.sleep(1)
"""


async def test_a_server_that_ignores_every_request_to_end_is_killed(
    impatient_servers: StdioServers,
) -> None:
    """With the processes that it started; the fixture looks."""
    async with (
        asyncio.timeout(WAIT_SECONDS),
        impatient_servers.open(python_endpoint(STUBBORN)) as streams,
    ):
        await Talk(streams).send("hello")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every process may write to. Not in /tmp, of which an isolated one has its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


ENDS_BY = """
import os, signal, sys, time
def note(word):
    with open(sys.argv[1], "a") as file: file.write(word)
def stop(*_):
    note("terminated")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print('{"jsonrpc": "2.0", "id": 1, "result": {}}', flush=True)
if sys.argv[2] == "stdin":
    sys.stdin.read()
    note("closed")
    sys.exit()
while True: time.sleep(1)
"""


@pytest.mark.parametrize(("how", "word"), [("stdin", "closed"), ("signal", "terminated")])
async def test_a_server_is_asked_to_end_before_it_is_killed(
    level: str, temporary: Path, shared: Path, how: str, word: str
) -> None:
    """At first by the end of its input, then by SIGTERM."""
    isolation = Isolation(network=False, writable=(str(shared),)) if level == "isolated" else None
    sandbox = SubprocessSandbox(
        isolation=isolation,
        writable=(shared,),
        user=ToolUser.find("nobody") if os.geteuid() == 0 else None,
    )
    grace_seconds = WAIT_SECONDS if how == "stdin" else 2.0
    servers = StdioServers(sandbox, max_message_bytes=1000, grace_seconds=grace_seconds)
    endpoint = python_endpoint(ENDS_BY, str(shared / "note"), how)
    async with asyncio.timeout(2 * WAIT_SECONDS), servers.open(endpoint) as streams:
        await Talk(streams).ask()
    await sandbox.close()
    assert (shared / "note").read_text() == word


async def test_an_opening_that_is_cancelled_leaves_nothing(
    impatient_servers: StdioServers, sandbox: SubprocessSandbox
) -> None:
    async def open_and_wait() -> None:
        async with impatient_servers.open(answering_endpoint()) as streams:
            await Talk(streams).wait_for_failure()

    for rounds in range(20):
        opening = asyncio.create_task(open_and_wait())
        for _ in range(rounds):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening}, timeout=WAIT_SECONDS)
        assert opening.cancelled()
        assert sandbox.processes.list_recent() is not None


@only_plain
async def test_200_connections_leave_no_process_descriptor_folder_or_task(
    servers: StdioServers, sandbox: SubprocessSandbox, temporary: Path
) -> None:
    async def talk() -> None:
        async with servers.open(answering_endpoint()) as streams:
            assert await Talk(streams).ask("hello") == {"method": "hello"}

    await talk()
    (root,) = entries(temporary)
    before = count_descriptors(), len(asyncio.all_tasks())
    async with asyncio.timeout(5 * WAIT_SECONDS):
        for _ in range(40):
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(talk())
    assert count_processes(sandbox) == 0
    assert entries(root) == []
    assert (count_descriptors(), len(asyncio.all_tasks())) == before


OWNER = """
import asyncio, sys
from pathlib import Path
from tests.support.stdio_programs import python_endpoint, Talk
from holdfast.adapters.mcp.stdio import StdioServers
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox

async def main():
    source, gate, records, level = sys.argv[1:]
    sandbox = SubprocessSandbox(
        isolation=Isolation(network=True) if level == "isolated" else None, record=ToolRecord(Path(records))
    )
    servers = StdioServers(sandbox, max_message_bytes=1000)
    async with servers.open(python_endpoint(source, gate)) as streams:
        await Talk(streams).wait_for_failure()

asyncio.run(main())
"""


@only_plain
async def test_a_server_counts_as_a_tool(servers: StdioServers, sandbox: SubprocessSandbox) -> None:
    """A Holdfast without a password refuses the requests of tools."""
    source = "def answer(method, params): return {'pid': os.getpid()}"
    async with asyncio.timeout(WAIT_SECONDS), servers.open(answering_endpoint(source)) as streams:
        answer = await Talk(streams).ask()
        assert sandbox.processes.may_have_sockets
        assert may_be_tool_process(answer["pid"], sandbox.processes.list_recent())
        assert not may_be_tool_process(os.getpid(), sandbox.processes.list_recent())


def test_the_sdk_is_imported_when_a_server_is_opened() -> None:
    script = "import sys, holdfast.adapters.mcp.stdio; print([name for name in sys.modules if name.startswith('mcp')])"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"
