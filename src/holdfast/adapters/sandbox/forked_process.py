"""A process that a fork server has forked, seen from the server: its pid, how it ends, and how all of it is ended."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.adapters.sandbox.environments import finish_despite_cancel
from holdfast.adapters.sandbox.fork_server import REPORT_END, TERMINATE, ForkKind
from holdfast.adapters.sandbox.fork_server_pool import ForkServerProcess
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.tool_processes import CallProcesses, ToolProcesses
from holdfast.ports.sandbox import SandboxLimits

_REAP_SECONDS: Final = 5.0
"""How long to wait for a killed process to end; only one that hangs inside the kernel takes so long."""

_MAX_REPORT_BYTES: Final = 1000

_T = TypeVar("_T")
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    exit_code: int
    killed_for: str | None

    def describe(self, subject: str, limits: SandboxLimits) -> str | None:
        """What happened to the subject, such as "The tool"; None if it has exited by itself."""
        if self.killed_for is not None:
            return _describe_excess(subject, self.killed_for, limits)
        if self.exit_code < 0:
            reason = signal.strsignal(-self.exit_code)
            return f"{subject}'s process was killed by signal {-self.exit_code} ({reason})."
        return None


@dataclass(frozen=True, slots=True)
class ForkedProcess:
    pid: int
    server: ForkServerProcess
    channel: socket.socket
    report: socket.socket
    end_task: asyncio.Task[ProcessEnd | None]
    """None: the fork server has died, and it is not known how the process ended."""
    resources: contextlib.ExitStack

    @classmethod
    async def fork_from(
        cls,
        server: ForkServerProcess,
        kind: ForkKind,
        outputs: tuple[int, int],
        given: tuple[int, ...],
    ) -> "ForkedProcess":
        """A process that waits for its request. It gets ``outputs`` as stdout and stderr, and the descriptors ``given``.
        Raises OSError or EOFError if the fork server cannot start one."""
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as theirs:
                channel, their_channel = _open_sockets(ours, theirs)
                report, their_report = _open_sockets(ours, theirs)
                fds = [their_channel.fileno(), *outputs, their_report.fileno(), *given]
                socket.send_fds(server.control, [kind.value], fds)
            # We know the pid before any code of others runs: the fork waits for its request, and exits when the channel
            # closes without one.
            (pid,) = struct.unpack("!q", await _receive_exactly(report, 8))
            end_task = asyncio.create_task(_read_end(report))
            ours.callback(end_task.cancel)
            return cls(pid, server, channel, report, end_task, ours.pop_all())

    @property
    def end(self) -> ProcessEnd | None:
        """How it ended; None if that is not known, or not yet."""
        return result_if_done(self.end_task)

    def find_processes(self) -> CallProcesses:
        # In its own pid namespace the call has another session id than the one that this machine shows.
        session = None if self.server.root is None else self.pid
        return CallProcesses(self.server.process.pid, session)

    async def ask(self, request: bytes, max_answer_bytes: int) -> dict[str, Any] | None:
        """Send the request and return the answer; None if it cannot be read: the tool's code may write to the channel."""
        header = struct.pack("!q", len(request))
        try:
            await asyncio.get_running_loop().sock_sendall(self.channel, header + request)
            (size,) = struct.unpack("!q", await _receive_exactly(self.channel, 8))
            answer = json.loads(await _receive_exactly(self.channel, min(size, max_answer_bytes)))
        except (OSError, EOFError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    async def wait_for_end(self, seconds: float = _REAP_SECONDS) -> bool:
        """Whether it has ended, after waiting so long at most."""
        await asyncio.wait({self.end_task}, timeout=seconds)
        return self.end_task.done()

    def terminate(self) -> None:
        """Have the fork server ask all its processes to end (SIGTERM)."""
        if not self.end_task.done():
            with contextlib.suppress(OSError):  # the other side has closed it
                self.report.send(TERMINATE)

    def kill(self) -> None:
        """Have the fork server kill all its processes that are left."""
        if not self.end_task.done():
            with contextlib.suppress(OSError):  # as above
                self.report.shutdown(socket.SHUT_WR)
        elif self.end is None:
            self.server.kill_orphans(self.pid)


@contextlib.asynccontextmanager
async def hold_process(
    process: ForkedProcess, processes: ToolProcesses, record: ToolRecord | None
) -> AsyncIterator[None]:
    """Hold this while the process may live. At the end it is killed, with all that it started, and its folder is gone."""
    recorded = contextlib.nullcontext() if record is None else record.record_session(process.pid)
    with processes.track(process.find_processes()), recorded:
        try:
            yield
        finally:
            process.kill()
            await finish_despite_cancel(_clean_up(process, processes))


async def _clean_up(process: ForkedProcess, processes: ToolProcesses) -> None:
    await process.wait_for_end()
    if process.end is None:
        processes.report_lost()
        process.server.kill_orphans(process.pid)
    else:
        await _wait_for_removal(process.report)
    process.resources.close()


def open_pipe(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack, *, is_input: bool = False
) -> tuple[int, int]:
    """A pipe from the process to us, or with ``is_input`` to it: our end, which does not block, and that of the process."""
    readable, writable = os.pipe()
    near, far = (writable, readable) if is_input else (readable, writable)
    # A tool of another user may open /dev/stdout again. Only the tool can name this pipe, so the mode protects nothing.
    with contextlib.suppress(OSError):
        os.fchmod(far, 0o666)
    ours.callback(os.close, near)
    theirs.callback(os.close, far)
    os.set_blocking(near, False)
    return near, far


def result_if_done(task: asyncio.Task[_T | None]) -> _T | None:
    return task.result() if task.done() else None


def _describe_excess(subject: str, killed_for: str, limits: SandboxLimits) -> str:
    match killed_for:
        case "memory":
            return f"{subject} used more than {limits.memory_bytes} bytes of memory and was killed."
        case "processes":
            return f"{subject} started more than {limits.processes} processes and was killed."
        case "threads":
            return f"{subject} started more than {limits.threads} threads and was killed."
        case "folder_bytes":
            return (
                f"{subject}'s files took more than {limits.folder_bytes} bytes and it was killed."
            )
        case _:
            return f"{subject} made more than {limits.folder_files} files and was killed."


async def _read_end(report: socket.socket) -> ProcessEnd | None:
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
    return ProcessEnd(**json.loads(data))


async def _wait_for_removal(report: socket.socket) -> None:
    """Wait until the folder is removed; not for long, because there may be many files in it."""
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
