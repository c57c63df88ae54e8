"""Custom tools in processes of their own, forked from a warm one (`fork_server.py`).

This side knows descriptors, output and time; what a process may do is the fork server's affair, the tool's code,
its arguments and return values are `child.py`'s.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.adapters.sandbox.environments import Environments
from holdfast.adapters.sandbox.levels import Isolation
from holdfast.adapters.sandbox.uninterrupted import uninterrupted
from holdfast.adapters.sandbox.warm import WarmServer, WarmServers, inherited_environment
from holdfast.errors import BackendError, ToolError
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Kept of each of stdout and stderr; the rest is read and dropped, so that the tool never blocks."""

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""The longest return of wire-v1 §2.5, 1,000,000 characters, at four bytes each."""

_REAP_SECONDS: Final = 5.0
"""For a killed process to be gone; only one that hangs inside the kernel takes so long."""

_GRACE_SECONDS: Final = 0.5
"""For the answer of a process that ended, or the end of one whose answer cannot be read."""

_MAX_REPORT_BYTES: Final = 1000

_T = TypeVar("_T")
_CHUNK_BYTES: Final = 64 * 1024


class SubprocessSandbox:
    def __init__(
        self,
        *,
        limits: SandboxLimits | None = None,
        isolation: Isolation | None = None,
        environments: Environments | None = None,
        hidden: tuple[Path, ...] = (),
        max_concurrent: int | None = None,
    ) -> None:
        """Without ``environments`` no requirements can be installed, without ``isolation`` the level is plain. What
        is ``hidden`` tools cannot reach at all, where the kernel can hide it."""
        self._slots = asyncio.Semaphore(max_concurrent or 2 * (os.cpu_count() or 1))
        self._limits = limits or SandboxLimits()
        self._environments = environments
        self._warm = WarmServers(self._limits, isolation, hidden)

    async def run(self, call: SandboxCall) -> SandboxResult:
        try:
            environment = await self._environment(call.requirements)
        except ToolError as error:
            return SandboxResult(status="failed", error=str(error))
        async with self._slots, self._forked(environment) as child:
            return await self._outcome(child, call)

    async def close(self) -> None:
        if self._environments is not None:
            await self._environments.close()
        await self._warm.close()

    async def _environment(self, requirements: tuple[str, ...]) -> Path | None:
        if not requirements:
            return None
        if self._environments is None:
            raise ToolError("This server installs no packages for tools.")
        return await self._environments.ready(requirements)

    @contextlib.asynccontextmanager
    async def _forked(self, environment: Path | None) -> AsyncIterator["_Child"]:
        """A process that waits for its request; dead, with all that it started, at the end."""
        with contextlib.ExitStack() as lent:
            child = await self._fork(environment, lent)
            try:
                yield child
            finally:
                child.end()
                await uninterrupted(_clean_up(child))

    async def _fork(self, environment: Path | None, lent: contextlib.ExitStack) -> "_Child":
        for _ in range(2):  # a fork server that died, by whatever hand, is replaced
            server = lent.enter_context(self._warm.lent(environment))
            with contextlib.suppress(OSError, EOFError):
                return await _Child.forked_from(server)
        raise BackendError("The tool sandbox could not start a process.")

    async def _outcome(self, child: "_Child", call: SandboxCall) -> SandboxResult:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        asking = asyncio.create_task(child.ask(_request(call)))
        child.resources.callback(asking.cancel)
        flooding = asyncio.create_task(child.flood(self._limits.output_bytes))
        child.resources.callback(flooding.cancel)
        done, _ = await asyncio.wait(
            {asking, flooding, child.ending},
            timeout=call.timeout_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        duration_seconds = loop.time() - started_at
        if done and flooding not in done:
            # The answer and the end come together, as a rule in this order; few need to be told to end.
            await asyncio.wait({asking, child.ending}, timeout=_GRACE_SECONDS)
        child.end()
        await asyncio.wait({child.ending}, timeout=_REAP_SECONDS)
        if not done:
            verdict = _overdue(call.timeout_seconds)
        elif flooding in done:
            verdict = _failure(
                f"The tool wrote more than {self._limits.output_bytes} bytes of output."
            )
        else:
            verdict = _verdict(_result(asking), _result(child.ending), self._limits)
        return SandboxResult(
            **verdict,
            stdout=child.stdout.lines(),
            stderr=child.stderr.lines(),
            duration_seconds=duration_seconds,
        )


def _request(call: SandboxCall) -> bytes:
    body = {
        "source": call.source,
        "function": call.function,
        "arguments": dict(call.arguments),
        "agent_state": None if call.agent_state is None else dict(call.agent_state),
        "env": {**inherited_environment(), **call.env},
        "max_result_bytes": MAX_RESULT_BYTES,
    }
    return json.dumps(body).encode()


class _Output:
    """One stream of the tool, read as it comes so that the tool never blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = bytearray()
        self.written = 0
        self.on_more: Callable[[], object] = lambda: None
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
        self.written += len(data)
        self.on_more()
        return bool(data)


@dataclass(frozen=True, slots=True)
class _Ending:
    exit_code: int
    killed_for: str | None


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    server: WarmServer
    channel: socket.socket
    report: socket.socket
    stdout: _Output
    stderr: _Output
    ending: asyncio.Task[_Ending | None]
    resources: contextlib.ExitStack

    @classmethod
    async def forked_from(cls, server: WarmServer) -> "_Child":
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                channel, their_channel = _sockets(ours, theirs)
                report, their_report = _sockets(ours, theirs)
                stdout, their_stdout = _pipe(ours, theirs)
                stderr, their_stderr = _pipe(ours, theirs)
                given = [their_channel.fileno(), their_stdout, their_stderr, their_report.fileno()]
                socket.send_fds(server.control, [b"f"], given)
            # Tool code runs only once we know whom to kill: the fork waits for its request, and ends
            # when the channel closes without one.
            (pid,) = struct.unpack("!q", await _exactly(report, 8))
            ending = asyncio.create_task(_ending(report))
            ours.callback(ending.cancel)
            return cls(pid, server, channel, report, stdout, stderr, ending, ours.pop_all())

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

    async def flood(self, most: int) -> None:
        """Returns when the tool has written more than that."""
        more = asyncio.Event()
        for output in (self.stdout, self.stderr):
            output.on_more = more.set
        while self.stdout.written + self.stderr.written <= most:
            await more.wait()
            more.clear()

    def end(self) -> None:
        """Have everything killed that the call started, if something is left of it."""
        if not self.ending.done():
            with contextlib.suppress(OSError):  # the other side was faster
                self.report.shutdown(socket.SHUT_WR)
        elif _result(self.ending) is None:
            self.server.kill_lost(self.pid)


def _overdue(timeout_seconds: float) -> dict[str, Any]:
    error = f"The tool did not finish within {timeout_seconds:g} seconds."
    return {"status": "timed_out", "error": error}


def _failure(error: str) -> dict[str, Any]:
    return {"status": "failed", "error": error}


def _verdict(
    answer: dict[str, Any] | None, ending: _Ending | None, limits: SandboxLimits
) -> dict[str, Any]:
    if answer is None:
        return _failure(_last_words(ending, limits))
    if "value" in answer:
        return {"status": "finished", "value": answer["value"]}
    return _failure(str(answer.get("error")))


def _last_words(ending: _Ending | None, limits: SandboxLimits) -> str:
    if ending is None:
        return "The tool's process was lost."
    if ending.killed_for == "memory":
        return f"The tool used more than {limits.memory_bytes} bytes of memory and was killed."
    if ending.killed_for == "processes":
        return f"The tool started more than {limits.processes} processes and was killed."
    if ending.killed_for == "threads":
        return f"The tool started more than {limits.threads} threads and was killed."
    if ending.exit_code < 0:
        reason = signal.strsignal(-ending.exit_code)
        return f"The tool's process was killed by signal {-ending.exit_code} ({reason})."
    return f"The tool's process ended with exit code {ending.exit_code} before it returned a value."


def _result(task: asyncio.Task[_T | None]) -> _T | None:
    return task.result() if task.done() else None


async def _clean_up(child: _Child) -> None:
    await asyncio.wait({child.ending}, timeout=_REAP_SECONDS)
    if _result(child.ending) is None:
        child.server.kill_lost(child.pid)
    child.resources.close()


async def _ending(report: socket.socket) -> _Ending | None:
    """How the process ended; None if the fork server died and nobody knows."""
    loop = asyncio.get_running_loop()
    words = b""
    try:
        while chunk := await loop.sock_recv(report, _MAX_REPORT_BYTES):
            words += chunk
    except OSError:
        return None
    return _Ending(**json.loads(words)) if words else None


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
