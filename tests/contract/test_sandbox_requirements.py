"""Packages of tools: installed once per set, in a separate environment, and never used when incomplete."""

import asyncio
import fcntl
import logging
import os
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.support.server_process import ServerProcess
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.sandbox import environments as building
from holdfast.adapters.sandbox.environments import Environments, _environment_key, remove_surplus
from holdfast.adapters.sandbox.fork_server_pool import ForkServerPool
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.core.messages import Outcome, Text, ToolCall
from holdfast.core.turn import PlannedCall
from holdfast.errors import ToolError
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult
from holdfast.ports.services import Services
from holdfast.ports.toolbox import ToolContext

pytestmark = pytest.mark.slow

INSTALL_SECONDS = 100.0
GREETING = ("greeting==1.0",)
MISSING = ("holdfast-has-no-such-package",)
# Files in a wheel that other programs would execute or trust.
INTRUDER = {
    "intruder.py": "",
    "intruder.pth": "import os, sys; sys.intruded = [*getattr(sys, 'intruded', []), os.getpid()]\n",
    "sitecustomize.py": "import intruder",
    "holdfast/__init__.py": "raise SystemExit('a false holdfast')",
    "json/__init__.py": "raise SystemExit('a false json')",
    "intruder-1.0.data/scripts/python": "#!/bin/sh\nexit 1",
    "intruder-1.0.data/data/pyvenv.cfg": "home = /nowhere",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "greeting", {"greeting.py": "def greet(name): return f'Hello, {name}!'\n"})
    make_wheel(folder, "intruder", INTRUDER)
    return folder


def make_wheel(folder: Path, name: str, files: Mapping[str, str]) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Shared by all tests, since creating pip's environment takes seconds. Isolated tools have their own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        yield Path(home, "environments")


@pytest.fixture(autouse=True)
def no_network(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set pip's own environment variables, as an operator would."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


def environments(folder: Path, install_seconds: float = INSTALL_SECONDS) -> Environments:
    return Environments(folder, install_seconds=install_seconds)


def call(requirements: tuple[str, ...] = GREETING) -> SandboxCall:
    return SandboxCall(
        source="import greeting\ndef tool(): return greeting.greet('Ada')",
        function="tool",
        arguments={},
        timeout_seconds=WAIT_SECONDS,
        env={},
        requirements=requirements,
    )


def list_entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


async def test_packages_are_installed_once_for_all_who_ask_at_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A build that was killed left an incomplete environment."""
    half_made = folder / _environment_key(GREETING) / "bin"
    half_made.mkdir(parents=True)
    caplog.set_level(logging.INFO)
    sandbox = SubprocessSandbox(environments=environments(folder))
    try:
        results = await asyncio.gather(*(sandbox.run(call()) for _ in range(3)))
        without = await sandbox.run(call(()))
    finally:
        await sandbox.close()

    assert [result.error for result in results] == [None] * 3
    assert [result.value for result in results] == ["Hello, Ada!"] * 3
    assert without.error == "ModuleNotFoundError: No module named 'greeting'"
    begun = [
        vars(record)["requirements"]
        for record in caplog.records
        if record.message == "packages.installing"
    ]
    assert begun == ["greeting==1.0", "pip"]
    said = [
        vars(record)["pip"] for record in caplog.records if record.message == "packages.progress"
    ]
    assert "Successfully installed greeting-1.0" in said


def test_a_running_server_installs_packages(wheels: Path) -> None:
    """Its event loop is not that of these tests, and takes other options for the programs that it starts."""
    body = {
        "source_code": "import greeting\n\n\ndef tool() -> str:\n    'Greet.'\n    return greeting.greet('Ada')\n",
        "args": {},
        "pip_requirements": [{"name": "greeting", "version": "1.0"}],
    }
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        server = ServerProcess.start(Path(home), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
        try:
            answer = httpx.post(
                f"{server.address}/v1/tools/run", json=body, timeout=INSTALL_SECONDS, verify=False
            )
        finally:
            server.stop()
    assert answer.status_code == 200, answer.text
    assert answer.json()["tool_return"] == "Hello, Ada!"


@pytest.mark.parametrize("level", ["plain", "isolated"])
async def test_a_later_server_uses_what_is_there(
    folder: Path, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    isolation = isolation_of(level, folder)
    await environments(folder).prepare(GREETING)
    caplog.set_level(logging.INFO)
    caplog.clear()
    sandbox = SubprocessSandbox(environments=environments(folder), isolation=isolation)
    try:
        assert (await sandbox.run(call())).value == "Hello, Ada!"
    finally:
        await sandbox.close()
    assert caplog.messages == []


@pytest.mark.skipif(os.geteuid() != 0, reason="The tests do not run as root.")
async def test_another_user_reaches_its_packages_in_the_closed_home_and_nothing_else(
    folder: Path,
) -> None:
    await environments(folder).prepare(GREETING)
    (folder.parent / "secret.key").write_text("key")
    user = ToolUser.find("nobody")
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    if (problem := user.switch_problem([str(folder / _environment_key(GREETING))])) is not None:
        pytest.skip(problem)
    source = """
import os, sys, greeting
def tool(home: str): return [os.getuid(), greeting.greet("Ada"), os.listdir(home), len(os.listdir(home + "/environments"))]
"""
    sandbox = SubprocessSandbox(environments=environments(folder), user=user)
    try:
        asked = replace(call(), source=source, arguments={"home": str(folder.parent)})
        result = await sandbox.run(asked)
    finally:
        await sandbox.close()
    assert (result.error, result.value) == (
        None,
        [user.uid, "Hello, Ada!", ["environments"], 1],
    )


@pytest.mark.parametrize("level", ["plain", "isolated"])
async def test_what_a_package_brings_runs_in_the_tools_process_and_nowhere_else(
    folder: Path, level: str
) -> None:
    sandbox = SubprocessSandbox(
        environments=environments(folder), isolation=isolation_of(level, folder)
    )
    source = """
import os, sys, intruder
def tool(): return [sys.intruded == [os.getpid()], "sitecustomize" in sys.modules, sys.prefix, exit.name]
"""
    try:
        result = await sandbox.run(replace(call(("intruder==1.0",)), source=source))
    finally:
        await sandbox.close()
    assert result.error is None
    assert result.value == [True, False, str(folder / _environment_key(("intruder==1.0",))), "exit"]


def isolation_of(level: str, folder: Path) -> Isolation | None:
    if level == "plain":
        return None
    isolation = Isolation(network=False, hidden=(str(folder),))
    if reason := isolation_problem(isolation):
        pytest.skip(reason)
    return isolation


async def test_a_failed_installation_is_reported_with_the_text_of_pip_and_leaves_nothing(
    folder: Path,
) -> None:
    sandbox = SubprocessSandbox(environments=environments(folder))
    try:
        failed = await sandbox.run(call(MISSING))
        again = await sandbox.run(call(MISSING))
    finally:
        await sandbox.close()

    assert failed.status == "failed"
    assert "No matching distribution found for holdfast-has-no-such-package" in (failed.error or "")
    assert again.error == failed.error
    assert _environment_key(MISSING) not in list_entries(folder)


async def test_one_who_stops_waiting_does_not_stop_the_others(folder: Path) -> None:
    both = environments(folder)
    requirements = ("greeting<2",)
    impatient = asyncio.create_task(both.prepare(requirements))
    patient = asyncio.create_task(both.prepare(requirements))
    await eventually(lambda: _environment_key(requirements) in list_entries(folder))
    impatient.cancel()

    path = await asyncio.wait_for(patient, INSTALL_SECONDS)

    assert impatient.cancelled()
    assert [found.name for found in path.rglob("greeting.py")] == ["greeting.py"]


async def test_closing_ends_a_build_and_removes_its_beginnings(folder: Path) -> None:
    closed = environments(folder)
    requirements = ("greeting>=1",)
    waiting = asyncio.create_task(closed.prepare(requirements))
    await eventually(lambda: _environment_key(requirements) in list_entries(folder))

    await asyncio.wait_for(closed.close(), WAIT_SECONDS)

    await asyncio.wait({waiting}, timeout=WAIT_SECONDS)
    assert waiting.cancelled()
    assert _environment_key(requirements) not in list_entries(folder)


async def test_a_build_has_a_time_limit_also_while_another_process_builds(tmp_path: Path) -> None:
    lock = tmp_path / f"{_environment_key(GREETING)}.lock"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(
            ToolError, match=r"Installing greeting==1.0 took longer than 0.1 seconds."
        ):
            await environments(tmp_path, 0.1).prepare(GREETING)
    finally:
        os.close(descriptor)
    assert list_entries(tmp_path) == set()


def make_complete_environment(
    folder: Path, requirements: tuple[str, ...], *, used_seconds_ago: float
) -> Path:
    path = folder / _environment_key(requirements)
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "python").symlink_to("/bin/true")
    (path / "holdfast-complete").touch()
    used_at = time.time() - used_seconds_ago
    os.utime(path / "holdfast-complete", (used_at, used_at))
    return path


async def test_only_so_many_are_built_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_complete_environment(tmp_path, (), used_seconds_ago=0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    opened = os.open(gate, os.O_RDWR)
    script = f'mkdir "$2"; touch "$2.begun"; read _ < {gate}; touch "$2.done"'
    monkeypatch.setattr(building, "_VENV", ("sh", "-c", script, "sh"))

    def count(suffix: str) -> int:
        return len(list(tmp_path.glob(f"*.{suffix}")))

    every = environments(tmp_path)
    builds = [asyncio.create_task(every.prepare((f"x=={number}",))) for number in range(4)]
    try:
        await eventually(lambda: count("begun") == 2)
        os.write(opened, b"\n")
        await eventually(lambda: (count("done"), count("begun")) == (1, 3))
        os.write(opened, b"\n\n\n")
        await asyncio.wait_for(asyncio.gather(*builds), WAIT_SECONDS)
    finally:
        await every.close()
        os.close(opened)


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    hours = [5, 3, 4, 0]
    paths = [
        make_complete_environment(tmp_path, (str(each),), used_seconds_ago=each * 3600 + 1)
        for each in hours
    ]
    leftover = tmp_path / "leftover"
    leftover.mkdir()

    assert remove_surplus(tmp_path, 3) == 3
    assert list_entries(tmp_path) == {paths[1].name, paths[2].name, paths[3].name}
    assert remove_surplus(tmp_path, 0) == 1
    assert list_entries(tmp_path) == {paths[3].name}
    assert (paths[3] / "holdfast-complete").exists()


async def test_one_that_is_used_is_not_removed(tmp_path: Path) -> None:
    path = make_complete_environment(tmp_path, GREETING, used_seconds_ago=7200)
    assert await environments(tmp_path).prepare(GREETING) == path
    assert remove_surplus(tmp_path, 0) == 1


def test_one_that_is_being_built_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "half-made").mkdir()
    descriptor = os.open(tmp_path / "half-made.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert remove_surplus(tmp_path, 0) == 1
    os.close(descriptor)
    assert remove_surplus(tmp_path, 0) == 0


async def test_where_there_is_no_room_a_new_set_is_refused(tmp_path: Path) -> None:
    make_complete_environment(tmp_path, GREETING, used_seconds_ago=0)
    full = Environments(tmp_path, install_seconds=INSTALL_SECONDS, max_environments=1)
    with pytest.raises(ToolError, match=r"keeps 1 sets of packages, and all were used lately"):
        await full.prepare(MISSING)
    assert list_entries(tmp_path) == {_environment_key(GREETING)}


async def test_only_so_many_failures_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_complete_environment(tmp_path, GREETING, used_seconds_ago=0)
    monkeypatch.setattr(building, "MAX_FAILURES", 2)
    full = Environments(tmp_path, install_seconds=INSTALL_SECONDS, max_environments=1)
    for number in range(3):
        with pytest.raises(ToolError):
            await full.prepare((f"x=={number}",))
    assert [path.name for path in full._failures] == [
        _environment_key(("x==1",)),
        _environment_key(("x==2",)),
    ]


async def test_packages_cannot_be_installed_where_there_is_no_place_for_them() -> None:
    sandbox = SubprocessSandbox()
    try:
        assert (await sandbox.run(call())).error == "This server installs no packages for tools."
    finally:
        await sandbox.close()


class RecordingSandbox:
    def __init__(self) -> None:
        self.calls: list[SandboxCall] = []

    async def run(self, call: SandboxCall) -> SandboxResult:
        self.calls.append(call)
        return SandboxResult(status="finished", value={"a": [1, None], "b": "ü"})

    async def close(self) -> None:
        pass


async def test_a_tool_is_run_with_its_requirements_and_a_dict_comes_back_as_json(
    make: Make,
) -> None:
    sandbox = RecordingSandbox()
    tool = make.tool(
        name="greet", source_code="", pip_requirements=[{"name": "Greeting", "version": "1.0"}]
    )
    planned = PlannedCall(ToolCall("call-1", "greet", "{}"), {})
    context = ToolContext(agent_id="agent-1", organization_id="org-1", thread_id="thread-1")

    router = ToolRouter(sandbox=sandbox, timeout_seconds=1)
    router.bind(cast("Services", None))  # which the tool does not ask for

    returned = await router.run(tool, planned, context)

    assert [call.requirements for call in sandbox.calls] == [GREETING]
    assert returned.content == (Text('{"a": [1, null], "b": "ü"}'),)

    # As if it came from another source than a tool's request.
    odd = make.tool(name="greet", source_code="", pip_requirements=[{"name": "--pre"}])
    refused = await router.run(odd, planned, context)

    assert refused.outcome is Outcome.FAILED
    assert "'--pre' in pip_requirements is not the name of a package" in str(refused.content)


async def test_a_tool_that_imports_a_missing_package_is_pointed_to_pip_requirements(
    make: Make,
) -> None:
    source = "def greet():\n    from greeting.words import hello\n    return hello"
    sandbox = SubprocessSandbox()
    router = ToolRouter(sandbox=sandbox, timeout_seconds=WAIT_SECONDS)
    router.bind(cast("Services", None))  # which the tool does not ask for
    planned = PlannedCall(ToolCall("call-1", "greet", "{}"), {})
    context = ToolContext(agent_id="agent-1", organization_id="org-1", thread_id="thread-1")

    called = await router.run(make.tool(name="greet", source_code=source), planned, context)
    tried = await router.run_source(source, "greet", {}, {})
    await sandbox.close()

    error = (
        "Error executing function greet: ModuleNotFoundError: No module named 'greeting'. "
        "If this is a package, name it in the tool's pip_requirements."
    )
    assert called.content == tried.content == (Text(error),)


def make_environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


async def test_only_so_many_fork_servers_are_warm_and_none_for_long(tmp_path: Path) -> None:
    paths = [make_environment(tmp_path / str(number)) for number in range(3)]
    warm = ForkServerPool(SandboxLimits(), None, max_servers=2)
    lent = []
    for path in paths:
        with warm.borrow(path) as server:
            lent.append(server)
    assert [server.environment for server in warm._servers.values()] == paths[1:]
    await eventually(lambda: not lent[0].is_alive)

    warm.idle_seconds = 0
    with warm.borrow(paths[1]) as server:
        assert server is lent[1]
    await eventually(lambda: not lent[1].is_alive)
    assert [server.environment for server in warm._servers.values()] == paths[2:]

    await warm.close()
    assert not lent[2].is_alive


async def test_a_fork_server_that_is_in_use_stays(tmp_path: Path) -> None:
    paths = [make_environment(tmp_path / str(number)) for number in range(2)]
    warm = ForkServerPool(SandboxLimits(), None, max_servers=1, idle_seconds=0)
    try:
        with warm.borrow(paths[0]) as first, warm.borrow(paths[1]) as second:
            assert first.is_alive
            assert second.is_alive
    finally:
        await warm.close()


async def test_the_fork_server_without_requirements_stays_unless_it_shall_stop_when_idle() -> None:
    staying = ForkServerPool(SandboxLimits(), None, idle_seconds=0)
    stopping = ForkServerPool(SandboxLimits(), None, idle_seconds=0, stops_when_idle=True)
    try:
        with staying.borrow(None) as kept, stopping.borrow(None) as stopped:
            assert stopped.is_alive
        await eventually(lambda: not stopped.is_alive)
        assert kept.is_alive
    finally:
        await staying.close()
        await stopping.close()
