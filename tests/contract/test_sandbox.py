"""What every Sandbox promises (ports/sandbox.py), shown with real processes."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.sandbox.subprocess import (
    MAX_OUTPUT_BYTES,
    MAX_RESULT_BYTES,
    SubprocessSandbox,
)
from holdfast.ports.sandbox import (
    FIRST_DESCRIPTOR,
    Sandbox,
    SandboxCall,
    SandboxLimits,
    SandboxResult,
)

pytestmark = pytest.mark.slow


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    made = SubprocessSandbox(writable=(tmp_path,))
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_sandbox() -> AsyncIterator[Sandbox]:
    """For calls that leave nothing behind: most of the time of a first call is the fork server's start."""
    made = SubprocessSandbox()
    yield made
    await made.close()


shares_sandbox = pytest.mark.asyncio(loop_scope="module")


def call(source: str, **given: Any) -> SandboxCall:
    return SandboxCall(
        source=textwrap.dedent(source),
        function="tool",
        arguments=given.pop("arguments", {}),
        timeout_seconds=given.pop("timeout_seconds", WAIT_SECONDS),
        env=given.pop("env", {}),
        **given,
    )


def is_gone(pid: int) -> bool:
    """Whether the process is dead, also if init has not reaped it yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def exists(path: str) -> bool:
    return Path(path).exists()


def resolve_path(path: str) -> str:
    return str(Path(path).resolve())


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def written_pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if not path.suffix]


def written_folder(folder: Path, pid: int) -> str:
    return (folder / str(pid)).read_text()


# Writes its own pid and that of a child process, in each file its working folder, then hangs.
HANGING_FAMILY = """
import os, pathlib, subprocess, sys, time
def tool(folder: str):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    for pid in (os.getpid(), other.pid):
        pathlib.Path(folder, f"{pid}.new").write_text(os.getcwd())
        pathlib.Path(folder, f"{pid}.new").rename(pathlib.Path(folder, str(pid)))
    print("started", flush=True)
    time.sleep(600)
"""


@shares_sandbox
@pytest.mark.parametrize(
    "value",
    [None, True, 5, -2.5, "text", "ünï\U0001f600", [1, [2]], {"a": {"b": None}}, "x" * 1_000_000],
    ids=lambda value: repr(value)[:20],
)
async def test_json_values_come_back_as_they_went(shared_sandbox: Sandbox, value: Any) -> None:
    result = await shared_sandbox.run(call("def tool(x): return x", arguments={"x": value}))
    assert (result.status, result.value, result.error) == ("finished", value, None)


@shares_sandbox
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(1, 2)", [1, 2]),
        ("{3}", [3]),
        ("{1: (2,)}", {"1": [2]}),
        ("Color.RED", "red"),
        ("Point(1, Color.RED)", {"x": 1, "color": "red"}),
        ("Model(x=3)", {"x": 3}),
        ("datetime.date(2026, 1, 2)", "2026-01-02"),
        ("float('inf')", "inf"),
        ("b'raw'", "b'raw'"),
        ("'\\ud800'", "?"),
    ],
)
async def test_other_return_values_become_json(
    shared_sandbox: Sandbox, expression: str, expected: Any
) -> None:
    source = f"""
    import dataclasses, datetime, enum
    from pydantic import BaseModel
    class Color(enum.Enum):
        RED = "red"
    @dataclasses.dataclass
    class Point:
        x: int
        color: Color
    class Model(BaseModel):
        x: int
    def tool(): return {expression}
    """
    result = await shared_sandbox.run(call(source))
    assert (result.status, result.value) == ("finished", expected)


@shares_sandbox
@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        ("int", "5", "5"),
        ("int", 5.0, "5"),
        ("float", 5, "5.0"),
        ("bool", "false", "False"),
        ("str", "5", "'5'"),
        ("Optional[int]", "5", "5"),
        ("Optional[int]", None, "None"),
        ("int | str", "5", "'5'"),
        ("list[int]", ["1", 2], "[1, 2]"),
        ("set[int]", [1, 1], "{1}"),
        ("tuple[int, str]", ["1", "b"], "(1, 'b')"),
        ("dict[str, float]", {"a": 1}, "{'a': 1.0}"),
        ("dict", {"a": 1}, "{'a': 1}"),
        ("Color", "red", "<Color.RED: 'red'>"),
        ("Point", {"x": "1"}, "Point(x=1)"),
        ("Model", {"x": "1"}, "Model(x=1)"),
        ("list[Model]", [{"x": 1}], "[Model(x=1)]"),
        ("'Model | None'", {"x": 1}, "Model(x=1)"),
        ("datetime.date", "2026-01-02", "datetime.date(2026, 1, 2)"),
        ("Movie", {"x": 1}, "{'x': 1}"),
        ("Optional[Movie]", {"x": 1}, "{'x': 1}"),
        ("Literal['a']", "a", "'a'"),
        ("'Unknown'", "5", "'5'"),
        ("list", [1], "[1]"),
    ],
)
async def test_arguments_are_coerced_by_their_annotations(
    shared_sandbox: Sandbox, annotation: str, given: Any, expected: str
) -> None:
    source = f"""
    import dataclasses, datetime, enum
    from typing import Literal, Optional, TypedDict
    from pydantic import BaseModel
    class Movie(TypedDict):
        x: int
    class Color(enum.Enum):
        RED = "red"
    @dataclasses.dataclass
    class Point:
        x: int
    class Model(BaseModel):
        x: int
    def tool(x: {annotation}): return repr(x)
    """
    result = await shared_sandbox.run(call(source, arguments={"x": given}))
    assert (result.status, result.value) == ("finished", expected)


async def test_an_optional_parameter_may_be_left_out(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        call("def tool(a: int | None, b: int = 2, /, *, c: 'str | None'): return [a, b, c]")
    )
    assert result.value == [None, 2, None]


async def test_an_async_function_is_awaited(sandbox: Sandbox) -> None:
    source = """
    import asyncio
    async def tool(x: int):
        await asyncio.sleep(0)
        return x + 1
    """
    assert (await sandbox.run(call(source, arguments={"x": 1}))).value == 2


async def test_agent_state_goes_only_to_a_function_that_asks_for_it(sandbox: Sandbox) -> None:
    state = {"name": "Ada", "memory": {"blocks": [{"label": "human"}]}}
    asks = "def tool(agent_state: 'AgentState'): return [agent_state.memory.blocks[0].label, agent_state['name']]"
    assert (await sandbox.run(call(asks, agent_state=state))).value == ["human", "Ada"]
    assert (await sandbox.run(call("def tool(): return 1", agent_state=state))).value == 1


async def test_agent_state_is_asked_as_v1s_objects_were(sandbox: Sandbox) -> None:
    state = {"name": "Ada", "memory": {"blocks": [{"label": "human", "value": "Bob"}]}}
    source = """
    def tool(agent_state):
        memory = agent_state.memory
        return [
            memory.get_block("human").value,
            memory.list_block_labels(),
            hasattr(agent_state, "colour"),
            getattr(agent_state, "colour", "none"),
        ]
    """
    assert (await sandbox.run(call(source, agent_state=state))).value == [
        "Bob",
        ["human"],
        False,
        "none",
    ]
    missing = "def tool(agent_state): return agent_state.memory.get_block('pet')"
    refused = await sandbox.run(call(missing, agent_state=state))
    assert refused.error is not None
    assert "There is no block 'pet'; there are: ['human']" in refused.error


async def test_stdout_and_stderr_are_kept_apart(sandbox: Sandbox) -> None:
    source = """
    import os, subprocess, sys
    print("while loading")
    def tool():
        print("out")
        print("err", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo from a program; echo its error > /dev/stderr"], check=True)
        sys.stdout.write("no newline")
    """
    result = await sandbox.run(call(source))
    assert result.stdout == ("while loading", "out", "from a program", "no newline")
    assert result.stderr == ("err", "its error")


@shares_sandbox
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def tool(): raise ValueError('bad luck')", "ValueError: bad luck"),
        ("def tool(): return {}['x']", "KeyError: 'x'"),
        ("raise RuntimeError('while loading')", "RuntimeError: while loading"),
        ("def tool(x): pass", "TypeError: tool() missing 1 required positional argument: 'x'"),
        ("def other(): pass", "AttributeError: module 'tool' has no attribute 'tool'"),
        ("def tool(): raise KeyboardInterrupt", "KeyboardInterrupt: "),
        (
            "import sys\ndef tool(): sys.exit(3)",
            "The tool called sys.exit(3) instead of returning a value.",
        ),
        (
            "import os\ndef tool(): os._exit(3)",
            "The tool's process ended with exit code 3 before it returned a value.",
        ),
        (
            "import os\ndef tool(): os.kill(os.getpid(), 11)",
            "The tool's process was killed by signal 11 (Segmentation fault).",
        ),
        (
            f"def tool(): return 'x' * {MAX_RESULT_BYTES}",
            f"The tool's result is larger than {MAX_RESULT_BYTES} bytes.",
        ),
    ],
)
async def test_every_error_of_a_tool_is_reported(
    shared_sandbox: Sandbox, source: str, error: str
) -> None:
    result = await shared_sandbox.run(call(source))
    assert (result.status, result.value, result.error) == ("failed", None, error)


async def test_unknown_arguments_and_broken_source_are_reported(sandbox: Sandbox) -> None:
    unknown = await sandbox.run(call("def tool(): pass", arguments={"y": 1}))
    assert unknown.error == "TypeError: tool() got an unexpected keyword argument 'y'"
    broken = await sandbox.run(call("def tool(:"))
    assert (broken.error or "").startswith("SyntaxError: ")


async def test_a_tool_may_close_its_streams(sandbox: Sandbox) -> None:
    source = """
    import sys
    def tool(fail: bool):
        sys.stdout.close()
        sys.stderr = None
        return 1 / 0 if fail else 1
    """
    assert (await sandbox.run(call(source, arguments={"fail": False}))).value == 1
    failed = await sandbox.run(call(source, arguments={"fail": True}))
    assert failed.error == "ZeroDivisionError: division by zero"


async def test_the_traceback_is_in_stderr_and_the_message_is_bounded(sandbox: Sandbox) -> None:
    result = await sandbox.run(call("def tool():\n    raise ValueError('x' * 5000)"))
    assert len(result.error or "") == 1000
    assert "    raise ValueError('x' * 5000)" in result.stderr


async def test_memory_is_limited() -> None:
    sandbox = SubprocessSandbox(limits=SandboxLimits(memory_bytes=512 * 1024**2))
    try:
        result = await sandbox.run(call("def tool(): return len(bytearray(1024 ** 3))"))
    finally:
        await sandbox.close()
    assert (result.error or "").startswith("MemoryError")


async def test_the_servers_environment_stays_with_the_server(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "server-key")
    source = """
    import os
    def tool(): return [dict(os.environ), os.getcwd()]
    """
    result = await sandbox.run(call(source, env={"MY_SECRET": "tool-key"}))
    env, folder = result.value
    assert "server-key" not in str(result.value)
    assert env["MY_SECRET"] == "tool-key"
    assert env["PATH"] == os.environ["PATH"]
    assert resolve_path(env["HOME"]) == resolve_path(env["TMPDIR"]) == resolve_path(folder)
    assert folder != os.environ.get("HOME")


async def test_the_tools_folder_is_removed(sandbox: Sandbox) -> None:
    source = """
    import os, pathlib, tempfile
    def tool():
        pathlib.Path("sub").mkdir()
        pathlib.Path("sub/file").write_text("x")
        return [os.getcwd(), tempfile.gettempdir()]
    """
    folder, temporary = (await sandbox.run(call(source))).value
    assert resolve_path(temporary) == resolve_path(folder)
    assert not exists(folder)


async def test_a_tool_that_takes_too_long_dies_with_all_that_it_started(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    result = await sandbox.run(
        call(HANGING_FAMILY, arguments={"folder": str(tmp_path)}, timeout_seconds=3)
    )
    assert result.status == "timed_out"
    assert result.error == "The tool did not finish within 3 seconds."
    assert result.stdout == ("started",)
    pids = written_pids(tmp_path)
    assert len(pids) == 2
    await eventually(lambda: all(is_gone(pid) for pid in pids))


async def test_cancelling_kills_the_tool_with_all_that_it_started(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    running = asyncio.create_task(
        sandbox.run(call(HANGING_FAMILY, arguments={"folder": str(tmp_path)}))
    )
    await eventually(lambda: len(written_pids(tmp_path)) == 2)
    pids = written_pids(tmp_path)
    folders = [written_folder(tmp_path, pid) for pid in pids]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, WAIT_SECONDS)
    await eventually(lambda: all(is_gone(pid) for pid in pids))
    assert not any(exists(folder) for folder in folders)
    assert (await sandbox.run(call("def tool(): return 1"))).value == 1


async def test_cancelling_at_any_moment_leaves_no_descriptor(sandbox: Sandbox) -> None:
    await sandbox.run(call("def tool(): pass"))
    before = open_descriptors()
    for turns in range(30):
        running = asyncio.create_task(sandbox.run(call("def tool(): pass")))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running}, timeout=WAIT_SECONDS)
        assert running.done()
    assert open_descriptors() == before


async def test_nothing_that_a_finished_tool_started_lives_on(sandbox: Sandbox) -> None:
    source = """
    import subprocess, sys
    def tool():
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    """
    pid = (await sandbox.run(call(source))).value
    await eventually(lambda: is_gone(pid))


async def test_endless_output_is_bounded_and_does_not_block_the_tool(sandbox: Sandbox) -> None:
    source = f"""
    def tool():
        for _ in range(64):
            print("x" * {MAX_OUTPUT_BYTES // 16})
        return "done"
    """
    result = await sandbox.run(call(source))
    assert result.value == "done"
    assert len("\n".join(result.stdout)) <= MAX_OUTPUT_BYTES
    assert len(result.stdout) == 16


async def test_a_fork_that_holds_the_pipes_does_not_delay_the_result(sandbox: Sandbox) -> None:
    source = """
    import os, time
    def tool():
        if os.fork() == 0:
            time.sleep(600)
        os._exit(7)
    """
    result = await sandbox.run(call(source))
    assert result.error == "The tool's process ended with exit code 7 before it returned a value."


async def test_calls_run_beside_each_other(tmp_path: Path) -> None:
    """Each of the two waits for the other's file, so neither could finish alone."""
    source = """
    import pathlib, time
    def tool(folder: str, mine: str, other: str):
        pathlib.Path(folder, mine).touch()
        while not pathlib.Path(folder, other).exists():
            time.sleep(0.005)
        return mine
    """
    sandbox = SubprocessSandbox(max_concurrent=2, writable=(tmp_path,))
    names = [("a", "b"), ("b", "a")]
    try:
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(
                    sandbox.run(
                        call(source, arguments={"folder": str(tmp_path), "mine": m, "other": o})
                    )
                )
                for m, o in names
            ]
    finally:
        await sandbox.close()
    assert [task.result().value for task in running] == ["a", "b"]


async def test_no_more_calls_run_at_once_than_allowed(tmp_path: Path) -> None:
    source = """
    import os, pathlib
    def tool(folder: str):
        mark = pathlib.Path(folder, "running")
        mark.touch(exist_ok=False)
        os.sched_yield()
        mark.unlink()
    """
    sandbox = SubprocessSandbox(max_concurrent=1, writable=(tmp_path,))
    try:
        one = call(source, arguments={"folder": str(tmp_path)})
        results = await asyncio.gather(*(sandbox.run(one) for _ in range(10)))
    finally:
        await sandbox.close()
    assert [result.error for result in results] == [None] * 10


async def test_a_fork_server_that_dies_takes_its_calls_along_and_is_replaced(
    tmp_path: Path,
) -> None:
    sandbox = SubprocessSandbox(writable=(tmp_path,))
    try:
        running = asyncio.create_task(
            sandbox.run(call(HANGING_FAMILY, arguments={"folder": str(tmp_path)}))
        )
        await eventually(lambda: len(written_pids(tmp_path)) == 2)
        (server,) = sandbox._pool._servers.values()
        server.process.kill()
        lost = await asyncio.wait_for(running, WAIT_SECONDS)
        assert (lost.status, lost.error) == ("failed", "The tool's process was lost.")
        await eventually(lambda: all(is_gone(pid) for pid in written_pids(tmp_path)))
        assert (await sandbox.run(call("def tool(): return 1"))).value == 1
    finally:
        await sandbox.close()


async def test_a_tool_that_scribbles_over_its_channel_fails(sandbox: Sandbox) -> None:
    source = """
    import os
    def tool():
        for fd in range(3, 50):
            try:
                os.write(fd, b"\\xff" * 100)
            except OSError:
                pass
        return 1
    """
    assert (await sandbox.run(call(source))).status == "failed"
    assert (await sandbox.run(call("def tool(): return 1"))).value == 1


async def test_closing_ends_the_calls_that_run(tmp_path: Path) -> None:
    sandbox = SubprocessSandbox(writable=(tmp_path,))
    running = asyncio.create_task(
        sandbox.run(call(HANGING_FAMILY, arguments={"folder": str(tmp_path)}))
    )
    await eventually(lambda: len(written_pids(tmp_path)) == 2)
    pids = written_pids(tmp_path)
    await sandbox.close()
    result: SandboxResult = await asyncio.wait_for(running, WAIT_SECONDS)
    assert result.status == "failed"
    await eventually(lambda: all(is_gone(pid) for pid in pids))


async def test_tools_and_their_folders_go_with_the_server(tmp_path: Path) -> None:
    """The server's end of the control socket closes however the server ends, kill -9 included."""
    script = tmp_path / "server.py"
    pids = tmp_path / "pids"
    pids.mkdir()
    script.write_text(
        "import asyncio\n"
        "from pathlib import Path\n"
        "from holdfast.adapters.sandbox.subprocess import SubprocessSandbox\n"
        "from holdfast.ports.sandbox import SandboxCall\n"
        f"call = SandboxCall(source={HANGING_FAMILY!r}, function='tool', arguments={{'folder': {str(pids)!r}}}, timeout_seconds=600, env={{}})\n"
        f"asyncio.run(SubprocessSandbox(writable=(Path({str(pids)!r}),)).run(call))\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary)}
    server = await asyncio.create_subprocess_exec(sys.executable, str(script), env=env)
    await eventually(lambda: len(written_pids(pids)) == 2)
    server.send_signal(signal.SIGKILL)
    await server.wait()
    await eventually(lambda: all(is_gone(pid) for pid in written_pids(pids)))
    await eventually(lambda: not list(temporary.iterdir()))


@shares_sandbox
async def test_a_call_can_use_the_open_files_that_it_is_given(
    shared_sandbox: Sandbox, tmp_path: Path
) -> None:
    """And has no other of the server's."""
    (tmp_path / "in").write_bytes(b"some text")
    copy = """
    import os
    def tool(first: int):
        with os.fdopen(first, "rb") as source, os.fdopen(first + 1, "wb") as target:
            target.write(source.read().upper())
        return sorted(int(name) for name in os.listdir("/dev/fd"))
    """
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        given = (source.fileno(), target.fileno())
        arguments = {"first": FIRST_DESCRIPTOR}
        result = await shared_sandbox.run(call(copy, arguments=arguments, descriptors=given))
    assert result.status == "finished", result.error
    # Standard streams, the channel, and the one with which the folder is listed.
    assert result.value == [0, 1, 2, 3, FIRST_DESCRIPTOR]
    assert (tmp_path / "out").read_bytes() == b"SOME TEXT"
