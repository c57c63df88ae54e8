"""Custom tools in processes of their own, forked from a warm template (`child.py`).

Each call gets a process group, a folder, a scrubbed environment and a time limit. This side knows
descriptors and signals; the tool's code, its arguments and return values are `child.py`'s affair.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.errors import BackendError
from holdfast.ports.sandbox import SandboxCall, SandboxResult

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Kept of each of stdout and stderr; the rest is read and dropped, so that the tool never blocks."""

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""The longest return of wire-v1 §2.5, 1,000,000 characters, at four bytes each."""

MEMORY_BYTES: Final = 2 * 1024**3
"""Address space of one tool process."""

_REAP_SECONDS: Final = 5.0
"""For a killed process to be gone; only one that hangs inside the kernel takes so long."""

_GRACE_SECONDS: Final = 0.5
"""For the answer of a process that ended; only one whose offspring fled its group makes us wait."""

_T = TypeVar("_T")
_CHUNK_BYTES: Final = 64 * 1024
_INHERITED: Final = ("PATH", "LANG", "LANGUAGE", "TZ")
_SCRIPT: Final = Path(__file__).with_name("child.py")


class SubprocessSandbox:
    def __init__(
        self, *, max_concurrent: int | None = None, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._slots = asyncio.Semaphore(max_concurrent or 2 * (os.cpu_count() or 1))
        self._memory_bytes = memory_bytes
        self._template: _Template | None = None

    async def run(self, call: SandboxCall) -> SandboxResult:
        async with self._slots:
            child = await self._fork()
            try:
                request = self._request(call, child.folder)
                return await _outcome(child, request, call.timeout_seconds)
            finally:
                child.kill()
                await _uninterrupted(_clean_up(child))

    async def close(self) -> None:
        if self._template is not None:
            await asyncio.to_thread(self._template.stop)
            self._template = None

    async def _fork(self) -> "_Child":
        """A process that waits for its request. A template that died, by whatever hand, is replaced."""
        for _ in range(2):
            if self._template is not None and self._template.process.poll() is not None:
                self._template.stop()
                self._template = None
            if self._template is None:
                self._template = _Template.start()
            with contextlib.suppress(OSError, EOFError):
                return await _Child.forked_from(self._template)
        raise BackendError("The tool sandbox could not start a process.")

    def _request(self, call: SandboxCall, folder: str) -> bytes:
        body = {
            "source": call.source,
            "function": call.function,
            "arguments": dict(call.arguments),
            "agent_state": None if call.agent_state is None else dict(call.agent_state),
            "env": {**_environment(), "HOME": folder, "TMPDIR": folder, **call.env},
            "folder": folder,
            "memory_bytes": self._memory_bytes,
            "max_result_bytes": MAX_RESULT_BYTES,
        }
        return json.dumps(body).encode()


@dataclass(frozen=True, slots=True)
class _Template:
    """The warm process. When its control socket closes it kills its forks, removes `root` and ends."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    root: str

    @classmethod
    def start(cls) -> "_Template":
        root = tempfile.mkdtemp(prefix="holdfast-tools-")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            process = subprocess.Popen(  # noqa: S603 -- our own script, run by our own interpreter
                [sys.executable, "-I", "-X", "utf8", str(_SCRIPT), str(theirs.fileno()), root],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                cwd="/",
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return cls(process, ours, root)

    def stop(self) -> None:
        self.control.close()
        try:
            self.process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)  # of a template that could not do it


class _Output:
    """One stream of the tool, read as it comes so that the tool never blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = bytearray()
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def lines(self) -> tuple[str, ...]:
        """What a tool that ended has written, the rest of it taken from the pipe first."""
        while len(self._kept) < MAX_OUTPUT_BYTES and self._read():
            pass
        return tuple(self._kept.decode(errors="replace").splitlines())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._fd)
        self._kept += data[: MAX_OUTPUT_BYTES - len(self._kept)]
        return bool(data)


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    folder: str
    channel: socket.socket
    stdout: _Output
    stderr: _Output
    exit_code: asyncio.Task[int | None]
    resources: contextlib.ExitStack

    @classmethod
    async def forked_from(cls, template: _Template) -> "_Child":
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                channel, their_channel = _sockets(ours, theirs)
                report, their_report = _sockets(ours, theirs)
                stdout, their_stdout = _pipe(ours, theirs)
                stderr, their_stderr = _pipe(ours, theirs)
                given = [their_channel.fileno(), their_stdout, their_stderr, their_report.fileno()]
                socket.send_fds(template.control, [b"f"], given)
            # Tool code runs only once we know whom to kill: the fork waits for its request, and ends
            # when the channel closes without one.
            (pid,) = struct.unpack("!q", await _exactly(report, 8))
            exit_code = asyncio.create_task(_exit_code(report))
            ours.callback(exit_code.cancel)
            folder = tempfile.mkdtemp(dir=template.root)
            return cls(pid, folder, channel, stdout, stderr, exit_code, ours.pop_all())

    async def ask(self, request: bytes) -> dict[str, Any] | None:
        """The answer, or None: the channel is open to the tool's code, so anything may come."""
        header = struct.pack("!q", len(request))
        try:
            await asyncio.get_running_loop().sock_sendall(self.channel, header + request)
            (size,) = struct.unpack("!q", await _exactly(self.channel, 8))
            answer = json.loads(await _exactly(self.channel, min(size, MAX_RESULT_BYTES)))
        except (OSError, EOFError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    def kill(self) -> None:
        """Kill the group, unless the template has seen the end: then it has done so itself."""
        if _result(self.exit_code) is not None:
            return
        # The group exists a moment after the process does; EPERM is how macOS says "zombies only".
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, signal.SIGKILL)


async def _outcome(child: _Child, request: bytes, timeout_seconds: float) -> SandboxResult:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    asking = asyncio.create_task(child.ask(request))
    child.resources.callback(asking.cancel)
    done, _ = await asyncio.wait(
        {asking, child.exit_code}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
    )
    if done and not (asking.done() and asking.result()):
        await asyncio.wait({asking, child.exit_code}, timeout=_GRACE_SECONDS)
    duration_seconds = loop.time() - started_at
    child.kill()
    await asyncio.wait({child.exit_code}, timeout=_REAP_SECONDS)
    return SandboxResult(
        **(
            _verdict(_result(asking), _result(child.exit_code))
            if done
            else _overdue(timeout_seconds)
        ),
        stdout=child.stdout.lines(),
        stderr=child.stderr.lines(),
        duration_seconds=duration_seconds,
    )


def _overdue(timeout_seconds: float) -> dict[str, Any]:
    error = f"The tool did not finish within {timeout_seconds:g} seconds."
    return {"status": "timed_out", "error": error}


def _verdict(answer: dict[str, Any] | None, exit_code: int | None) -> dict[str, Any]:
    if answer is None:
        return {"status": "failed", "error": _ending(exit_code)}
    if "value" in answer:
        return {"status": "finished", "value": answer["value"]}
    return {"status": "failed", "error": str(answer.get("error"))}


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "The tool's process was lost."
    if exit_code < 0:
        reason = signal.strsignal(-exit_code)
        return f"The tool's process was killed by signal {-exit_code} ({reason})."
    return f"The tool's process ended with exit code {exit_code} before it returned a value."


def _result(task: asyncio.Task[_T | None]) -> _T | None:
    return task.result() if task.done() else None


async def _clean_up(child: _Child) -> None:
    await asyncio.wait({child.exit_code}, timeout=_REAP_SECONDS)
    child.resources.close()
    await asyncio.to_thread(shutil.rmtree, child.folder, ignore_errors=True)


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work whatever comes, then pass on the cancellation that came meanwhile."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _exit_code(report: socket.socket) -> int | None:
    """How the process ended; None if the template died and nobody knows."""
    try:
        (code,) = struct.unpack("!q", await _exactly(report, 8))
    except (OSError, EOFError):
        return None
    return int(code)


async def _exactly(source: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        chunk = await loop.sock_recv(source, min(size - len(data), _CHUNK_BYTES))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _sockets(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return ours.enter_context(near), theirs.enter_context(far)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[_Output, int]:
    readable, writable = os.pipe()
    theirs.callback(os.close, writable)
    output = _Output(readable)
    ours.callback(output.close)
    return output, writable


def _environment() -> dict[str, str]:
    """What a tool may know of the server's environment: never a key."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }
