"""Malicious tools: each is contained, reported as an error, and leaves no process, at each isolation level.

All tests of a level share the sandbox, so each also shows that the one before did not damage it.
"""

import asyncio
import errno
import os
import textwrap
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
import pytest_asyncio
from tests.support.python_homes import homes_of_python
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.sandbox.confinement import drop_privileges, hide_memory
from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.landlock import is_supported, restrict_signals
from holdfast.adapters.sandbox.subprocess import MAX_OUTPUT_BYTES, SubprocessSandbox
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LIMITS: Final = SandboxLimits(
    memory_bytes=256 * 1024**2,
    processes=12,
    threads=100,
    open_files=64,
    file_bytes=4 * 1024**2,
    output_bytes=4 * 1024**2,
)
ISOLATION: Final = Isolation(network=False)
WHY_NOT_ISOLATED: Final = isolation_problem(ISOLATION)

only_isolated = pytest.mark.parametrize("level", ["isolated"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["plain", "isolated"])
def level(request: pytest.FixtureRequest) -> str:
    if request.param == "isolated" and WHY_NOT_ISOLATED is not None:
        pytest.skip(WHY_NOT_ISOLATED)
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(level: str) -> AsyncIterator[SubprocessSandbox]:
    made = SubprocessSandbox(limits=LIMITS, isolation=ISOLATION if level == "isolated" else None)
    yield made
    await made.close()


def call(source: str, *, timeout_seconds: float = WAIT_SECONDS, **arguments: Any) -> SandboxCall:
    return SandboxCall(
        source=textwrap.dedent(source),
        function="tool",
        arguments=arguments,
        timeout_seconds=timeout_seconds,
        env={},
    )


def exists(path: str) -> bool:
    return Path(path).exists()


def calls_running(sandbox: SubprocessSandbox) -> int:
    """All descendants of the fork server, including zombies. Orphans are reparented to it, so none is missed."""
    if not sandbox._pool._servers:  # the first call has not begun
        return 0
    (server,) = sandbox._pool._servers.values()
    below = psutil.Process(server.process.pid).children(recursive=True)
    return (
        len(below) - 1
    )  # the fork server itself is a child of the process that watches it, or of bubblewrap


def can_restrict_signals() -> bool:
    pid = os.fork()
    if pid == 0:
        drop_privileges()
        os._exit(0 if restrict_signals() else 1)
    return os.waitpid(pid, 0)[1] == 0


async def attempt(sandbox: SubprocessSandbox, sandbox_call: SandboxCall) -> SandboxResult:
    """The call's result, after checking that no process is left and that the next call works."""
    async with asyncio.timeout(WAIT_SECONDS):
        result = await sandbox.run(sandbox_call)
    assert calls_running(sandbox) == 0
    after = await sandbox.run(call("def tool(): return 1"))
    assert (after.status, after.value) == ("finished", 1), after.error
    return result


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import sys\ndef tool(): sys.exit('x' * 10_000)", "The tool called sys.exit('xxx"),
        ("import os\ndef tool(): os._exit(0)", "The tool's process ended with exit code 0"),
        ("def tool(): return tool()", "RecursionError: "),
        (
            "def tool():\n    deep = []\n    for _ in range(10**5): deep = [deep]\n    return deep",
            "RecursionError: ",
        ),
        ("def tool(): return 'x' * 5 * 1024**2", "The tool's result is larger than"),
        ("def tool(): return 10 ** 10**5", "ValueError: "),
        (
            "class Bad(Exception):\n    def __str__(self): raise KeyError\ndef tool(): raise Bad",
            "Bad",
        ),
        (
            "class Bad:\n    def __str__(self): raise KeyError('no text')\ndef tool(): return Bad()",
            "KeyError: 'no text'",
        ),
        ("def tool(): return len(bytearray(10 * 1024**3))", "MemoryError"),
        (
            "import os\ndef tool(): os.closerange(0, 64)",
            "The tool's process ended with exit code 1",
        ),
        ("import os\ndef tool(): os.abort()", "The tool's process was killed by signal 6"),
        (
            "import os\ndef tool():\n    os._exit = lambda code: None\n    os.kill(os.getpid(), 9)",
            "The tool's process was killed by signal 9",
        ),
    ],
    ids=lambda text: text[:40].replace("\n", " "),
)
async def test_a_tool_that_breaks_itself_is_reported(
    sandbox: SubprocessSandbox, source: str, error: str
) -> None:
    result = await attempt(sandbox, call(source))
    assert result.status == "failed"
    assert (result.error or "").startswith(error)


@pytest.mark.parametrize(
    "body",
    [
        "while True: os.fork()",
        "while True:\n        if os.fork() == 0: os.setsid()",
        "while True: subprocess.Popen(['sleep', '600'], start_new_session=True)",
        """
    def fork():
        os.fork()
        time.sleep(600)
    threading.stack_size(64 * 1024)  # 40 ordinary stacks are more memory than is allowed
    for _ in range(40): threading.Thread(target=fork).start()
    time.sleep(600)
        """,
    ],
    ids=["forks", "forks that leave", "programs", "forks of threads"],
)
async def test_a_fork_bomb_is_put_out(sandbox: SubprocessSandbox, body: str) -> None:
    imports = "import os, subprocess, threading, time"
    result = await attempt(sandbox, call(f"{imports}\ndef tool():\n    {body}"))
    assert result.error == "The tool started more than 12 processes and was killed."


async def test_a_thread_bomb_is_put_out(sandbox: SubprocessSandbox) -> None:
    source = """
    import threading, time
    def tool():
        threading.stack_size(64 * 1024)
        while True: threading.Thread(target=time.sleep, args=(600,)).start()
    """
    result = await attempt(sandbox, call(source))
    assert result.error == f"The tool started more than {LIMITS.threads} threads and was killed."


@pytest.mark.parametrize(
    "source",
    [
        # Shared memory, which the kernel's process limits do not count.
        """
        import mmap
        def tool():
            held = mmap.mmap(-1, 10 * 1024**3)
            for at in range(0, 10 * 1024**3, 1024**2):
                held[at:at + 1024**2] = b"x" * 1024**2
        """,
        # Each process is within the limit.
        """
        import os, time
        def tool():
            for _ in range(8):
                if os.fork() == 0: break
            held = b"x" * (100 * 1024**2)
            time.sleep(600)
        """,
        # Each has private memory.
        """
        import mmap, os, time
        def tool():
            for _ in range(3):
                if os.fork() == 0: break
            held = mmap.mmap(-1, 150 * 1024**2)
            for _ in range(150): held.write(b"x" * 1024**2)
            time.sleep(600)
        """,
    ],
    ids=["shared", "spread", "shared and spread"],
)
async def test_memory_is_counted_over_all_that_a_tool_holds(
    sandbox: SubprocessSandbox, source: str
) -> None:
    result = await attempt(sandbox, call(source))
    assert (
        result.error
        == f"The tool used more than {LIMITS.memory_bytes} bytes of memory and was killed."
    )
    assert result.exceeded_limit == "memory"


@pytest.mark.parametrize(
    "attempted",
    [
        "libc.memfd_create(b'x', 0)",
        "libc.shmget(0, 4096, 0o1600)",
        "libc.semget(0, 1, 0o1600)",
        "libc.msgget(0, 0o1600)",
        "libc.mq_open(b'/holdfast-test', os.O_RDWR | os.O_CREAT, 0o600, None)",
        # add_key, into the user's keyring
        "libc.syscall({'x86_64': 248}.get(os.uname().machine, 217), b'user', b'x', b'x', 1, -4)",
    ],
)
async def test_no_process_is_uncounted_or_outlives_the_call(
    sandbox: SubprocessSandbox, attempted: str
) -> None:
    source = f"""
    import ctypes, errno, os
    libc = ctypes.CDLL(None, use_errno=True)
    def tool(): return [{attempted}, errno.errorcode.get(ctypes.get_errno())]
    """
    assert (await attempt(sandbox, call(source))).value == [-1, "ENOSYS"]


async def test_processes_of_a_tool_can_share_what_python_lets_them_share(
    sandbox: SubprocessSandbox,
) -> None:
    """The system calls refused above do not affect the standard library."""
    source = """
    from multiprocessing import Process, Queue, Value, shared_memory
    def work(name, value, queue):
        shared = shared_memory.SharedMemory(name)
        with value.get_lock(): value.value += shared.buf[0]
        shared.close()
        queue.put("done")
    def tool():
        shared = shared_memory.SharedMemory(create=True, size=4096)
        shared.buf[0], value, queue = 3, Value("i", 4), Queue()
        process = Process(target=work, args=(shared.name, value, queue))
        process.start()
        said = queue.get()
        process.join()
        shared.close()
        shared.unlink()
        return [value.value, said, process.exitcode]
    """
    result = await attempt(sandbox, call(source))
    assert (result.value, result.error) == ([7, "done", 0], None)


async def test_threads_do_not_count_for_what_they_only_reserve(sandbox: SubprocessSandbox) -> None:
    source = """
    import threading
    def tool():
        gate = threading.Barrier(21)
        for _ in range(20): threading.Thread(target=gate.wait).start()
        gate.wait()
        return "done"
    """
    assert (await attempt(sandbox, call(source))).value == "done"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_endless_output_ends_the_tool(sandbox: SubprocessSandbox, stream: str) -> None:
    source = f"import sys\ndef tool():\n    while True: sys.{stream}.write('x' * 1000 + '\\n')"
    result = await attempt(sandbox, call(source))
    assert result.error == f"The tool wrote more than {LIMITS.output_bytes} bytes of output."
    assert 0 < len("\n".join(getattr(result, stream))) <= MAX_OUTPUT_BYTES


async def test_a_double_fork_does_not_leave_the_call(sandbox: SubprocessSandbox) -> None:
    """The classic daemon: fork, new session, fork again, close the streams."""
    source = """
    import os, time
    def tool():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setpgid(0, 0)
                os.closerange(0, 64)
                while True: time.sleep(600)
            os._exit(0)
        os.wait()
        return "a daemon is at work"
    """
    assert (await attempt(sandbox, call(source))).value == "a daemon is at work"


async def test_a_tool_that_ignores_every_signal_that_can_be_ignored_dies_of_its_timeout(
    sandbox: SubprocessSandbox,
) -> None:
    source = """
    import signal, time
    def tool():
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        while True: time.sleep(600)
    """
    result = await attempt(sandbox, call(source, timeout_seconds=0.3))
    assert (result.status, result.error) == (
        "timed_out",
        "The tool did not finish within 0.3 seconds.",
    )


async def test_a_background_thread_neither_delays_nor_outlives_the_result(
    sandbox: SubprocessSandbox,
) -> None:
    source = """
    import atexit, threading, time
    def forever():
        while True: time.sleep(600)
    def tool():
        threading.Thread(target=forever).start()
        atexit.register(print, "after the return")
        return "done"
    """
    result = await attempt(sandbox, call(source))
    assert (result.value, result.stdout) == ("done", ())


async def test_what_a_forked_copy_prints_after_the_return_is_not_waited_for(
    sandbox: SubprocessSandbox,
) -> None:
    source = """
    import os, time
    def tool():
        if os.fork() == 0:
            time.sleep(600)
            print("late")
        return "done"
    """
    result = await attempt(sandbox, call(source))
    assert (result.value, result.stdout) == ("done", ())


async def test_a_second_result_is_ignored(sandbox: SubprocessSandbox) -> None:
    """A forked copy of the tool that also returns has the same channel."""
    source = """
    import os
    def tool():
        pid = os.fork()
        if pid: os.waitpid(pid, 0)
        return "copy" if pid == 0 else "original"
    """
    result = await attempt(sandbox, call(source))
    assert result.value in ("copy", "original")


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "-os.getpgid(os.getppid())", "server"])
async def test_no_process_outside_the_call_can_be_killed(
    sandbox: SubprocessSandbox, target: str
) -> None:
    source = f"""
    import os, signal
    def tool(server: int):
        try: os.kill({target}, signal.SIGKILL)
        except OSError as error: return type(error).__name__
        return "ignored"
    """
    (server,) = sandbox._pool._servers.values() or [None]
    result = await attempt(sandbox, call(source, server=os.getpid()))
    assert result.value in ("PermissionError", "ProcessLookupError", "ignored")
    if server is not None:
        assert list(sandbox._pool._servers.values()) == [server]
        assert server.is_alive


@pytest.mark.parametrize(
    "way",
    [
        "signal.pidfd_send_signal(os.open(f'/proc/{server}', os.O_RDONLY), 0)",
        "fcntl.fcntl(ours, fcntl.F_SETOWN, server)",
        "fcntl.fcntl(ours, fcntl.F_SETSIG, signal.SIGKILL)",
        # F_SETOWN_EX, FIOSETOWN, SIOCSPGRP
        "fcntl.fcntl(ours, 15, struct.pack('ii', 1, server))",
        "fcntl.ioctl(ours, 0x8901, struct.pack('i', server))",
        "fcntl.ioctl(ours, 0x8902, struct.pack('i', server))",
    ],
)
async def test_there_is_no_way_round_to_signal_the_server(
    sandbox: SubprocessSandbox, level: str, way: str
) -> None:
    source = f"""
    import fcntl, os, signal, socket, struct
    def tool(server: int):
        ours, _ = socket.socketpair()
        try: {way}
        except OSError as error: return type(error).__name__
    """
    result = await attempt(sandbox, call(source, server=os.getpid()))
    # A system call that is blocked as unavailable raises an OSError without a name.
    hidden = {"FileNotFoundError"} if level == "isolated" else {"OSError"}
    assert result.value in {"PermissionError", *(hidden if "pidfd" in way else ())}


async def test_no_other_process_can_be_signalled(sandbox: SubprocessSandbox) -> None:
    """A thread id of the server, by which the kernel finds the server; and an unrelated process."""
    if not can_restrict_signals():
        pytest.skip("The kernel is older than 6.12.")
    source = """
    import os, subprocess
    def tool(others: list):
        own = subprocess.Popen(["sleep", "600"])
        own.kill()
        for pid in others:
            try: os.kill(pid, 0)
            except (PermissionError, ProcessLookupError): continue
            return "reached"
        return own.wait()
    """
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    other = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        others = [thread.native_id, other.pid]
        assert (await attempt(sandbox, call(source, others=others))).value == -9
    finally:
        gate.set()
        other.kill()
        await other.wait()


async def test_open_files_and_written_files_are_limited(sandbox: SubprocessSandbox) -> None:
    many = "def tool():\n    held = [open('/dev/null') for _ in range(100)]"
    assert (await attempt(sandbox, call(many))).error == (
        "OSError: [Errno 24] Too many open files: '/dev/null'"
    )
    long = "def tool():\n    with open('f', 'wb', 0) as f:\n        while True: f.write(bytes(1024**2))"
    error = (await attempt(sandbox, call(long))).error or ""
    assert error.startswith(("OSError: [Errno 27]", "OSError: [Errno 28]"))


async def test_a_folder_that_resists_is_removed_all_the_same(sandbox: SubprocessSandbox) -> None:
    source = """
    import os
    def tool():
        os.makedirs("a/b")
        open("a/b/c", "w").close()
        os.chmod("a/b", 0)
        os.chmod("a", 0)
        return os.getcwd()
    """
    folder = (await attempt(sandbox, call(source))).value
    assert folder == "/tmp" or not exists(folder)


async def test_the_servers_keys_cannot_be_read(
    sandbox: SubprocessSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the environment nor from the memory of any visible process."""
    monkeypatch.setenv("OPENAI_API_KEY", "the-servers-key")
    hide_memory()
    source = """
    import os, pathlib
    def tool(server: int):
        seen = [str(dict(os.environ))]
        for pid in (server, os.getppid()):
            for name in ("environ", "mem", "maps", "cwd"):
                path = pathlib.Path(f"/proc/{pid}/{name}")
                try: seen.append(path.read_bytes()[:9].hex() if name != "cwd" else os.readlink(path))
                except OSError as error: seen.append(type(error).__name__)
        return seen
    """
    first, *others = (await attempt(sandbox, call(source, server=os.getpid()))).value
    assert "the-servers-key" not in first
    assert set(others) <= {"PermissionError", "FileNotFoundError"}


@only_isolated
async def test_isolated_tools_do_not_see_the_machine(
    sandbox: SubprocessSandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.key"
    secret.write_text("key")
    source = """
    import os, pathlib
    def tool(secret: str):
        return {
            "secret": pathlib.Path(secret).exists(),
            "homes": [str(p) for p in pathlib.Path("/home").glob("*")],
            "pids": sorted(int(n) for n in os.listdir("/proc") if n.isdigit())[0],
            "processes": sum(n.isdigit() for n in os.listdir("/proc")),
            "tmp": os.listdir("/tmp"),
            "here": [os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"]],
        }
    """
    assert (await attempt(sandbox, call(source, secret=str(secret)))).value == {
        "secret": False,
        "homes": homes_of_python(),
        "pids": 1,
        "processes": 2,
        "tmp": [],
        "here": ["/tmp"] * 3,
    }


@only_isolated
@pytest.mark.parametrize("path", ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname"])
async def test_isolated_tools_write_nowhere_but_in_their_tmp(
    sandbox: SubprocessSandbox, path: str
) -> None:
    result = await attempt(sandbox, call(f"def tool(): open({path!r}, 'w').write('x')"))
    assert (result.error or "").startswith(("OSError: [Errno 30]", "PermissionError: "))


@only_isolated
async def test_isolated_calls_leave_nothing_to_each_other(sandbox: SubprocessSandbox) -> None:
    leave = """
    import pathlib
    def tool():
        for folder in ("/tmp", "/dev/shm"): pathlib.Path(folder, "left").write_text("x")
    """
    look = "import os\ndef tool(): return os.listdir('/tmp') + os.listdir('/dev/shm')"
    assert (await attempt(sandbox, call(leave))).error is None
    assert (await attempt(sandbox, call(look))).value == []


@only_isolated
async def test_isolated_calls_do_not_see_each_other(sandbox: SubprocessSandbox) -> None:
    other = asyncio.create_task(
        sandbox.run(call("import time\ndef tool():\n    while True: time.sleep(600)"))
    )
    await eventually(lambda: calls_running(sandbox) == 2)
    look = (
        "import os\ndef tool(): return sorted(int(n) for n in os.listdir('/proc') if n.isdigit())"
    )
    seen = await sandbox.run(call(look))
    other.cancel()
    await asyncio.wait({other}, timeout=WAIT_SECONDS)
    assert seen.value == [1, 2]
    assert calls_running(sandbox) == 0


@only_isolated
async def test_isolated_calls_do_not_hear_each_other(sandbox: SubprocessSandbox) -> None:
    """Neither over loopback nor by an abstract socket; each call can connect to itself."""
    names = "names = [(socket.AF_INET, ('127.0.0.1', 4711)), (socket.AF_UNIX, '\\0holdfast')]"
    listen = f"""
    import os, socket, time
    {names}
    def tool():
        held = [socket.socket(family) for family, _ in names]
        for each, (family, name) in zip(held, names):
            each.bind(name)
            each.listen()
            socket.socket(family).connect(name)
        os.fork()  # so that it can be seen from outside how far we are
        while True: time.sleep(600)
    """
    speak = f"""
    import socket
    {names}
    def tool(): return [socket.socket(family).connect_ex(name) for family, name in names]
    """
    other = asyncio.create_task(sandbox.run(call(listen)))
    await eventually(lambda: calls_running(sandbox) == 3)
    spoken = await sandbox.run(call(speak))
    other.cancel()
    await asyncio.wait({other}, timeout=WAIT_SECONDS)
    assert spoken.value == [errno.ECONNREFUSED] * 2


@only_isolated
async def test_isolated_calls_do_not_share_terminals(sandbox: SubprocessSandbox) -> None:
    write = """
    import os, time
    def tool():
        terminal, _ = os.openpty()
        os.write(terminal, b"secret")
        os.fork()  # so that it can be seen from outside how far we are
        while True: time.sleep(600)
    """
    look = "import os\ndef tool(): return os.listdir('/dev/pts')"
    other = asyncio.create_task(sandbox.run(call(write)))
    await eventually(lambda: calls_running(sandbox) == 3)
    seen = await sandbox.run(call(look))
    other.cancel()
    await asyncio.wait({other}, timeout=WAIT_SECONDS)
    assert seen.value == ["ptmx"]


@only_isolated
async def test_isolated_tools_have_no_network(sandbox: SubprocessSandbox) -> None:
    source = """
    import socket
    def tool(port: int): socket.create_connection(("127.0.0.1", port), 5)
    """
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        result = await attempt(sandbox, call(source, port=port))
        assert (result.error or "").startswith("ConnectionRefusedError")
        allowed = SubprocessSandbox(isolation=Isolation(network=True))
        assert (await allowed.run(call(source, port=port))).error is None
        await allowed.close()


@only_isolated
async def test_isolated_tools_cannot_mount_or_make_namespaces(sandbox: SubprocessSandbox) -> None:
    source = """
    import ctypes
    def tool():
        libc = ctypes.CDLL(None)
        return [libc.unshare(0x20000), libc.mount(b"tmpfs", b"/usr", b"tmpfs", 0, None), libc.umount(b"/tmp")]
    """
    assert (await attempt(sandbox, call(source))).value == [-1, -1, -1]


async def test_cancelling_kills_the_daemons_too(sandbox: SubprocessSandbox, level: str) -> None:
    source = """
    import os, time
    def tool():
        for _ in range(3):
            if os.fork() == 0: os.setsid()
        while True: time.sleep(600)
    """
    running = asyncio.create_task(sandbox.run(call(source)))
    attendants = 1 if level == "isolated" else 0
    await eventually(lambda: calls_running(sandbox) == 8 + attendants)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, WAIT_SECONDS)
    assert calls_running(sandbox) == 0


@pytest.mark.skipif(not is_supported(), reason="this kernel has no Landlock (Linux 5.13 and newer)")
async def test_plain_tools_cannot_reach_what_is_the_servers_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret.key").write_text("key")
    (tmp_path / "beside").write_text("seen")
    link = tmp_path / "link"
    link.symlink_to(home)
    source = """
    import os, pathlib, subprocess
    def tool(home: str, link: str, beside: str):
        def tried(work):
            try:
                return str(work())
            except OSError as error:
                return type(error).__name__
        key = pathlib.Path(home, "secret.key")
        return {
            "read": tried(key.read_text),
            "by a link": tried(pathlib.Path(link, "secret.key").read_text),
            "listed": tried(lambda: os.listdir(home)),
            "written": tried(lambda: key.write_text("mine")),
            "made": tried(lambda: pathlib.Path(home, "new").write_text("mine")),
            "moved": tried(lambda: key.rename("here")),
            "by a program": subprocess.run(["cat", key], capture_output=True).returncode,
            "beside": tried(pathlib.Path(beside).read_text),
            "beside, written": tried(lambda: pathlib.Path(beside).write_text("more")),
            "here": tried(lambda: pathlib.Path("here").write_text("mine")),
        }
    """
    sandbox = SubprocessSandbox(limits=LIMITS, hidden=(home,))
    try:
        tried = call(source, home=str(home), link=str(link), beside=str(tmp_path / "beside"))
        result = await attempt(sandbox, tried)
    finally:
        await sandbox.close()

    assert result.value == {
        "read": "PermissionError",
        "by a link": "PermissionError",
        "listed": "PermissionError",
        "written": "PermissionError",
        "made": "PermissionError",
        "moved": "PermissionError",
        "by a program": 1,
        "beside": "seen",
        "beside, written": "PermissionError",
        "here": "4",
    }
    assert (home / "secret.key").read_text() == "key"
