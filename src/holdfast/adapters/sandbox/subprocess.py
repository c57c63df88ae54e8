"""Runs custom tools in processes that a fork server forks (`fork_server.py`).

This module handles descriptors, output and timeouts. The fork server confines the processes; `child.py` runs the
tool's code and converts its arguments and return values.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.adapters.sandbox.environments import Environments, finish_despite_cancel
from holdfast.adapters.sandbox.fork_server import REPORT_END
from holdfast.adapters.sandbox.fork_server_pool import (
    ForkServerPool,
    ForkServerProcess,
    inherited_environment,
)
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.tool_processes import CallProcesses, ToolProcesses
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.errors import BackendError, ToolError
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""How much of each of stdout and stderr is kept; the rest is read and dropped, so that the tool never blocks."""

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""The longest return value of wire-v1 §2.5, 1,000,000 characters, at four bytes each."""

_REAP_SECONDS: Final = 5.0
"""How long to wait for a killed process to end; only one that hangs inside the kernel takes so long."""

_GRACE_SECONDS: Final = 0.5
"""How long to wait for the answer of a process that ended, or for the end of one that has answered."""

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
        writable: tuple[Path, ...] = (),
        user: ToolUser | None = None,
        max_concurrent: int | None = None,
        record: ToolRecord | None = None,
        stops_when_idle: bool = False,
    ) -> None:
        """Without ``environments`` no requirements can be installed; without ``isolation`` the level is plain. Tools
        cannot access the ``hidden`` paths and write only to ``writable`` ones, where the kernel supports that. Plain
        tools run as ``user`` if this server may change to it and that user can reach what they need. ``record`` is for
        the next start. ``stops_when_idle``: no process is kept ready when there was no call for a while."""
        max_concurrent = max_concurrent or 2 * (os.cpu_count() or 1)
        self._slots = asyncio.Semaphore(max_concurrent)
        # Those that wait for others: if they had the slots of all, none would be left for what they wait for.
        self._waiting_slots = asyncio.Semaphore(max_concurrent)
        self._limits = limits or SandboxLimits()
        self._environments = environments
        self._record = None if isolation is not None else record
        self._pool = ForkServerPool(
            self._limits,
            isolation,
            hidden,
            writable,
            user,
            record=self._record,
            stops_when_idle=stops_when_idle,
        )
        self.processes = ToolProcesses()
        self.tool_uids = frozenset({os.geteuid(), *(() if user is None else (user.uid,))})
        """Users that tools may run as."""

    async def run(self, call: SandboxCall) -> SandboxResult:
        try:
            environment = await self._environment(call.requirements)
        except ToolError as error:
            return SandboxResult(status="failed", error=str(error))
        slots = self._waiting_slots if call.functions else self._slots
        async with slots, self._forked_child(environment, call.descriptors) as child:
            return await self._run_call(child, call)

    async def close(self) -> None:
        if self._environments is not None:
            await self._environments.close()
        await self._pool.close()
        if self._record is not None:
            self._record.close()

    async def _environment(self, requirements: tuple[str, ...]) -> Path | None:
        if not requirements:
            return None
        if self._environments is None:
            raise ToolError("This server installs no packages for tools.")
        return await self._environments.prepare(requirements)

    @contextlib.asynccontextmanager
    async def _forked_child(
        self, environment: Path | None, descriptors: tuple[int, ...]
    ) -> AsyncIterator["_Child"]:
        """A process that waits for its request; killed, with all that it started, at the end."""
        with contextlib.ExitStack() as borrowed:
            child = await self._fork(environment, descriptors, borrowed)
            with self.processes.track(child.find_processes()), self._record_call(child):
                try:
                    yield child
                finally:
                    child.kill()
                    await finish_despite_cancel(_clean_up(child, self.processes))

    def _record_call(self, child: "_Child") -> contextlib.AbstractContextManager[None]:
        return (
            contextlib.nullcontext()
            if self._record is None
            else self._record.record_session(child.pid)
        )

    async def _fork(
        self,
        environment: Path | None,
        descriptors: tuple[int, ...],
        borrowed: contextlib.ExitStack,
    ) -> "_Child":
        for _ in range(2):  # a fork server that died is replaced
            server = borrowed.enter_context(self._pool.borrow(environment))
            with contextlib.suppress(OSError, EOFError):
                return await _Child.fork_from(server, descriptors)
        raise BackendError("The tool sandbox could not start a process.")

    async def _run_call(self, child: "_Child", call: SandboxCall) -> SandboxResult:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        answer_task = asyncio.create_task(child.ask(_encode_request(call)))
        child.resources.callback(answer_task.cancel)
        excess_task = asyncio.create_task(child.wait_for_excess_output(self._limits.output_bytes))
        child.resources.callback(excess_task.cancel)
        done, _ = await asyncio.wait(
            {answer_task, excess_task, child.exit_task},
            timeout=call.timeout_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        duration_seconds = loop.time() - started_at
        if done and excess_task not in done:
            # The exit follows the answer at once; few processes need to be killed.
            await asyncio.wait({answer_task, child.exit_task}, timeout=_GRACE_SECONDS)
        child.kill()
        await asyncio.wait({child.exit_task}, timeout=_REAP_SECONDS)
        if not done:
            outcome = _timeout_result(call.timeout_seconds)
        elif excess_task in done:
            outcome = _failed_result(
                f"The tool wrote more than {self._limits.output_bytes} bytes of output."
            )
        else:
            outcome = _call_result(
                _result_if_done(answer_task), _result_if_done(child.exit_task), self._limits
            )
        return SandboxResult(
            **outcome,
            stdout=child.stdout.read_lines(),
            stderr=child.stderr.read_lines(),
            duration_seconds=duration_seconds,
        )


def _encode_request(call: SandboxCall) -> bytes:
    body = {
        "source": call.source,
        "function": call.function,
        "arguments": dict(call.arguments),
        "agent_state": None if call.agent_state is None else dict(call.agent_state),
        "env": {**inherited_environment(), **call.env},
        "max_result_bytes": MAX_RESULT_BYTES,
        "functions": [asdict(function) for function in call.functions],
    }
    return json.dumps(body).encode()


class _Output:
    """One output stream of the tool, read as data arrives so that the tool never blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()
        self.bytes_written = 0
        self.on_data: Callable[[], object] = lambda: None
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def read_lines(self) -> tuple[str, ...]:
        """The lines that the tool has written; call it when the tool has ended."""
        while len(self._buffer) < MAX_OUTPUT_BYTES and self._read():
            pass
        return tuple(self._buffer.decode(errors="replace").splitlines())

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
        self._buffer += data[: MAX_OUTPUT_BYTES - len(self._buffer)]
        self.bytes_written += len(data)
        self.on_data()
        return bool(data)


@dataclass(frozen=True, slots=True)
class _Exit:
    exit_code: int
    killed_for: str | None


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    server: ForkServerProcess
    channel: socket.socket
    report: socket.socket
    stdout: _Output
    stderr: _Output
    exit_task: asyncio.Task[_Exit | None]
    resources: contextlib.ExitStack

    @classmethod
    async def fork_from(cls, server: ForkServerProcess, descriptors: tuple[int, ...]) -> "_Child":
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                channel, their_channel = _open_sockets(ours, theirs)
                report, their_report = _open_sockets(ours, theirs)
                stdout, their_stdout = _open_pipe(ours, theirs)
                stderr, their_stderr = _open_pipe(ours, theirs)
                given = [their_channel.fileno(), their_stdout, their_stderr, their_report.fileno()]
                socket.send_fds(server.control, [b"f"], [*given, *descriptors])
            # We know the pid before any tool code runs: the fork waits for its request, and exits when the channel
            # closes without one.
            (pid,) = struct.unpack("!q", await _receive_exactly(report, 8))
            ending = asyncio.create_task(_read_exit(report))
            ours.callback(ending.cancel)
            return cls(pid, server, channel, report, stdout, stderr, ending, ours.pop_all())

    def find_processes(self) -> CallProcesses:
        # In its own pid namespace the call has another session id than the one that this machine shows.
        session = None if self.server.root is None else self.pid
        return CallProcesses(self.server.process.pid, session)

    async def ask(self, request: bytes) -> dict[str, Any] | None:
        """Send the request and return the answer; None if it cannot be read: the tool's code may write to the channel."""
        header = struct.pack("!q", len(request))
        try:
            await asyncio.get_running_loop().sock_sendall(self.channel, header + request)
            (size,) = struct.unpack("!q", await _receive_exactly(self.channel, 8))
            answer = json.loads(await _receive_exactly(self.channel, min(size, MAX_RESULT_BYTES)))
        except (OSError, EOFError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    async def wait_for_excess_output(self, max_bytes: int) -> None:
        """Return when the tool has written more than that."""
        more = asyncio.Event()
        for output in (self.stdout, self.stderr):
            output.on_data = more.set
        while self.stdout.bytes_written + self.stderr.bytes_written <= max_bytes:
            await more.wait()
            more.clear()

    def kill(self) -> None:
        """Have the fork server kill every process of the call that is left."""
        if not self.exit_task.done():
            with contextlib.suppress(OSError):  # the other side has closed it
                self.report.shutdown(socket.SHUT_WR)
        elif _result_if_done(self.exit_task) is None:
            self.server.kill_orphans(self.pid)


def _timeout_result(timeout_seconds: float) -> dict[str, Any]:
    error = f"The tool did not finish within {timeout_seconds:g} seconds."
    return {"status": "timed_out", "error": error}


def _failed_result(error: str) -> dict[str, Any]:
    return {"status": "failed", "error": error}


def _call_result(
    answer: dict[str, Any] | None, exit_: _Exit | None, limits: SandboxLimits
) -> dict[str, Any]:
    if answer is None:
        outcome = _failed_result(_describe_exit(exit_, limits))
        return {**outcome, "exceeded_limit": None if exit_ is None else exit_.killed_for}
    if "value" in answer:
        return {"status": "finished", "value": answer["value"]}
    return _failed_result(str(answer.get("error")))


def _describe_exit(exit_: _Exit | None, limits: SandboxLimits) -> str:
    if exit_ is None:
        return "The tool's process was lost."
    if exit_.killed_for == "memory":
        return f"The tool used more than {limits.memory_bytes} bytes of memory and was killed."
    if exit_.killed_for == "processes":
        return f"The tool started more than {limits.processes} processes and was killed."
    if exit_.killed_for == "threads":
        return f"The tool started more than {limits.threads} threads and was killed."
    if exit_.killed_for == "folder_bytes":
        return f"The tool's files took more than {limits.folder_bytes} bytes and it was killed."
    if exit_.killed_for == "folder_files":
        return f"The tool made more than {limits.folder_files} files and was killed."
    if exit_.exit_code < 0:
        reason = signal.strsignal(-exit_.exit_code)
        return f"The tool's process was killed by signal {-exit_.exit_code} ({reason})."
    return f"The tool's process ended with exit code {exit_.exit_code} before it returned a value."


def _result_if_done(task: asyncio.Task[_T | None]) -> _T | None:
    return task.result() if task.done() else None


async def _clean_up(child: _Child, processes: ToolProcesses) -> None:
    await asyncio.wait({child.exit_task}, timeout=_REAP_SECONDS)
    if _result_if_done(child.exit_task) is None:
        processes.report_lost()
        child.server.kill_orphans(child.pid)
    else:
        await _wait_for_removal(child.report)
    child.resources.close()


async def _read_exit(report: socket.socket) -> _Exit | None:
    """How the process ended; None if the fork server died and it is not known."""
    loop = asyncio.get_running_loop()
    data = b""
    try:
        while not data.endswith(REPORT_END):
            chunk = await loop.sock_recv(report, _MAX_REPORT_BYTES)
            if not chunk:
                return None
            data += chunk
    except OSError:
        return None
    return _Exit(**json.loads(data))


async def _wait_for_removal(report: socket.socket) -> None:
    """Wait until the call's folder is removed; not for long, because a tool may have made many files."""
    with contextlib.suppress(OSError, TimeoutError):
        try:
            report.recv(_MAX_REPORT_BYTES)  # most calls leave nothing to remove
        except BlockingIOError:
            async with asyncio.timeout(_REAP_SECONDS):
                await asyncio.get_running_loop().sock_recv(report, _MAX_REPORT_BYTES)


async def _receive_exactly(source: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        chunk = await loop.sock_recv(source, min(size - len(data), _CHUNK_BYTES))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _open_sockets(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    near.setblocking(False)
    return ours.enter_context(near), theirs.enter_context(far)


def _open_pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[_Output, int]:
    readable, writable = os.pipe()
    # A tool of another user may open /dev/stdout again. Only the tool can name this pipe, so the mode protects nothing.
    with contextlib.suppress(OSError):
        os.fchmod(writable, 0o666)
    theirs.callback(os.close, writable)
    output = _Output(readable)
    ours.callback(output.close)
    return output, writable
