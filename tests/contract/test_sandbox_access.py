"""Who plain tools run as, where they may write, and what older kernels leave open."""

import asyncio
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import WAIT_SECONDS

import holdfast
from holdfast.adapters.sandbox import confinement, plain_level, syscall_filter, tool_user
from holdfast.adapters.sandbox.doctor_checks import check_files, check_tool_access
from holdfast.adapters.sandbox.isolation import (
    Isolation,
    find_visible_names,
    isolation_problem,
)
from holdfast.adapters.sandbox.plain_level import (
    describe_root_risk,
    find_tool_user,
    writable_problem,
)
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.errors import CannotStart
from holdfast.ports.doctor_check import Verdict
from holdfast.ports.sandbox import SandboxCall

ALL_CAPABILITIES = (1 << 41) - 1
MOUNT_CAPABILITY = 1 << 21


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The server seems to run as root, with these capabilities."""

    def pretend(capabilities: int) -> None:
        monkeypatch.setattr(tool_user, "_effective_capabilities", lambda: capabilities)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(plain_level, "interpreter_paths", lambda: ["/usr"])

    return pretend


def test_tools_may_write_to_what_exists_and_is_not_holdfasts_own(tmp_path: Path) -> None:
    home, beside = tmp_path / "home", tmp_path / "beside"
    for folder in (home / "environments", beside):
        folder.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(home)
    assert writable_problem([beside], [home]) is None
    missing = writable_problem([tmp_path / "missing"], [home])
    assert missing == f"HOLDFAST_SANDBOX_WRITABLE names {tmp_path}/missing, which does not exist."
    for own in (home, home / "environments", tmp_path, link, Path("/")):
        problem = writable_problem([beside, own], [home])
        assert problem == (
            f"HOLDFAST_SANDBOX_WRITABLE names {own}, but tools may not write to Holdfast's own files ({home})."
        )


def test_tools_may_not_write_to_the_code_that_the_server_runs(tmp_path: Path) -> None:
    code = [os.__file__, sys.executable, pytest.__file__, holdfast.__file__]
    for path in (Path(file).parent for file in code):
        for named in (path, path.parent):
            problem = writable_problem([named], [tmp_path])
            assert problem is not None
            assert problem.startswith(
                f"HOLDFAST_SANDBOX_WRITABLE names {named}, but tools may not write to the server's code ("
            )


def test_a_user_is_found_by_name_or_number() -> None:
    assert ToolUser.find("root") == ToolUser(0, 0)
    assert ToolUser.find("0") == ToolUser(0, 0)
    assert ToolUser.find("54321") == ToolUser(54321, 54321)
    assert ToolUser.find("nobody").uid == 65534


def test_only_root_chooses_another_user(
    monkeypatch: pytest.MonkeyPatch, as_root: Callable[[int], None], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_tool_user("no such user") is None
    assert describe_root_risk("nobody", None, tmp_path) is None
    as_root(ALL_CAPABILITIES)
    assert find_tool_user("nobody") == ToolUser.find("nobody")
    assert find_tool_user("root") is None
    with pytest.raises(CannotStart, match="this machine has no such user"):
        find_tool_user("no such user")


def test_who_runs_plain_as_root_is_told_what_tools_run_as(
    as_root: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = ToolUser.find("nobody")
    tmp_path.chmod(0o700)

    def describe(capabilities: int, chosen: ToolUser | None = user) -> str:
        as_root(capabilities)
        return describe_root_risk("nobody", chosen, tmp_path) or ""

    assert "Plain tools run as nobody. " in describe(ALL_CAPABILITIES)
    assert "those with packages as root" in describe(ALL_CAPABILITIES & ~MOUNT_CAPABILITY)
    assert "run as root too, without its privileges: the server may not" in describe(0)
    assert "HOLDFAST_SANDBOX_USER says so" in describe(ALL_CAPABILITIES, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install bubblewrap" in describe(ALL_CAPABILITIES)
    (tmp_path / "bwrap").touch(0o755)
    assert "HOLDFAST_SANDBOX=isolated is safer" in describe(ALL_CAPABILITIES)


def test_a_python_that_the_user_cannot_reach_is_not_used(
    as_root: Callable[[int], None], tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    (closed / "python").mkdir(parents=True)
    closed.chmod(0o700)
    user = ToolUser(54321, 54321)
    as_root(ALL_CAPABILITIES & ~MOUNT_CAPABILITY)
    assert "cannot reach" in (user.switch_problem([str(closed / "python")]) or "")
    assert user.become(needed=[str(closed / "python")], writable=(), folder=str(tmp_path)) is False
    (closed / "python").chmod(0o700)
    as_root(ALL_CAPABILITIES)
    assert "may not read" in (user.switch_problem([str(closed / "python")]) or "")
    assert user.switch_problem(["/usr"]) is None


TOOL_USER = ToolUser(54321, 54321)


@pytest.fixture
def owned_home() -> Iterator[Path]:
    """A home that belongs to the user of tools."""
    if os.geteuid() != 0:
        pytest.skip("The tests do not run as root.")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder, "home")
        home.mkdir(0o700)
        for path in (home.parent, home):
            os.chown(path, *TOOL_USER)
        yield home


@pytest.mark.slow
def test_a_tool_user_that_owns_the_home_cannot_change_its_mode(owned_home: Path) -> None:
    async def run_tool() -> None:
        sandbox = SubprocessSandbox(hidden=(owned_home,), user=TOOL_USER)
        call = SandboxCall(
            source="import os\ndef tool(path): os.chmod(path, 0o777)",
            function="tool",
            arguments={"path": str(owned_home)},
            timeout_seconds=WAIT_SECONDS,
            env={},
        )
        await sandbox.run(call)
        await sandbox.close()

    asyncio.run(run_tool())
    assert stat.S_IMODE(owned_home.stat().st_mode) == 0o700


def test_the_doctor_reports_what_tools_may_not_be_allowed(tmp_path: Path) -> None:
    found = check_tool_access(
        user="nobody", writable=[tmp_path], private=[tmp_path], home=tmp_path, is_plain=False
    )
    assert [item.verdict for item in found] == [Verdict.PROBLEM]


def test_a_folder_is_hidden_from_isolated_tools_by_each_of_its_names() -> None:
    names = find_visible_names([Path("/usr/lib/holdfast"), Path("/srv/holdfast")])
    lib = Path("/lib").resolve() == Path("/usr/lib")
    assert names == [*(["/lib/holdfast"] if lib else []), "/usr/lib/holdfast"]


@pytest.mark.slow
def test_what_tools_need_is_visible_in_a_hidden_folder_but_must_not_be_that_folder() -> None:
    if (problem := isolation_problem(Isolation(network=False))) is not None:
        pytest.skip(problem)
    around, same = (
        isolation_problem(Isolation(network=False, hidden=(str(path),)))
        for path in (Path(sys.prefix).parent, sys.prefix)
    )
    assert around is None
    assert f"{sys.prefix} contains both Holdfast's own files and what tools need." in (same or "")


@pytest.mark.parametrize(
    ("abi", "gap"),
    [
        (0, "can read the home of Holdfast, and write to all files"),
        (1, "cannot move files"),
        (2, "cannot truncate a file by its path"),
        (4, "can configure devices"),
        (5, "abstract UNIX sockets"),
        (6, None),
        (7, None),
    ],
)
def test_the_doctor_says_what_each_version_of_landlock_leaves_open(
    abi: int, gap: str | None
) -> None:
    found = check_files(abi)
    assert found.verdict is (Verdict.GOOD if gap is None else Verdict.NOTE)
    assert gap is None or gap in found.message


@pytest.mark.skipif(not confinement.LINUX, reason="there are no filters")
@pytest.mark.parametrize("landlock_abi", [2, 3])
def test_the_filter_refuses_to_truncate_where_landlock_does_not_check_it(
    tmp_path: Path, landlock_abi: int
) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    guard = syscall_filter.Guard(files=True, landlock_abi=landlock_abi)
    attempts: list[Callable[[], object]] = [
        lambda: os.truncate(path, 0),
        lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
    ]
    for attempt in attempts:
        expected = errno.EPERM if landlock_abi < 3 else 0
        assert run_filtered(guard, attempt) == expected
    # Whoever may write is judged by Landlock.
    assert run_filtered(guard, lambda: os.open(path, os.O_WRONLY | os.O_TRUNC)) == 0


def run_filtered(guard: syscall_filter.Guard, attempt: Callable[[], object]) -> int:
    """The errno of the attempt in a process with the filter; 0 if it works."""
    filters = syscall_filter.build_filters(guard)
    if filters is None:
        pytest.skip("The filter does not know this machine's system calls.")
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            confinement.drop_privileges()
            syscall_filter.install_filter(filters.fork_server)
            syscall_filter.install_filter(filters.call)
            attempt()
            code = 0
        except OSError as error:
            code = error.errno or 255
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
