"""Runs custom tools in processes that a fork server forks (`fork_server.py`).

This module handles descriptors, output and timeouts. The fork server confines the processes; `child.py` runs the
tool's code and converts its arguments and return values.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.sandbox.environments import Environments
from holdfast.adapters.sandbox.fork_server import ForkKind
from holdfast.adapters.sandbox.fork_server_pool import ForkServerPool, inherited_environment
from holdfast.adapters.sandbox.forked_process import (
    ForkedProcess,
    ProcessEnd,
    hold_process,
    open_pipe,
    result_if_done,
)
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.sandbox.leftovers import ToolRecord
from holdfast.adapters.sandbox.tool_processes import ToolProcesses
from holdfast.adapters.sandbox.tool_user import ToolUser
from holdfast.errors import BackendError, ToolError
from holdfast.ports.sandbox import SandboxCall, SandboxLimits, SandboxResult

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""How much of each of stdout and stderr is kept; the rest is read and dropped, so that the tool never blocks."""

MAX_RESULT_BYTES: Final = 4 * 1024 * 1024
"""The longest return value of wire-v1 §2.5, 1,000,000 characters, at four bytes each."""

_GRACE_SECONDS: Final = 0.5
"""How long to wait for the answer of a process that ended, or for the end of one that has answered."""

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
        self.limits = limits or SandboxLimits()
        self._environments = environments
        self._record = None if isolation is not None else record
        self._pool = ForkServerPool(
            self.limits,
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
    async def fork(
        self,
        kind: ForkKind,
        outputs: tuple[int, int],
        given: tuple[int, ...],
        environment: Path | None = None,
    ) -> AsyncIterator[ForkedProcess]:
        """A process that waits for its request; killed, with all that it started, at the end. It gets ``outputs`` as
        stdout and stderr, and the descriptors ``given``. BackendError if it cannot be started."""
        with contextlib.ExitStack() as borrowed:
            for _ in range(2):  # a fork server that died is replaced
                server = borrowed.enter_context(self._pool.borrow(environment))
                with contextlib.suppress(OSError, EOFError):
                    process = await ForkedProcess.fork_from(server, kind, outputs, given)
                    break
            else:
                raise BackendError("The tool sandbox could not start a process.")
            async with hold_process(process, self.processes, self._record):
                yield process

    @contextlib.asynccontextmanager
    async def _forked_child(
        self, environment: Path | None, descriptors: tuple[int, ...]
    ) -> AsyncIterator["_Child"]:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            stdout, their_stdout = _open_output(ours, theirs)
            stderr, their_stderr = _open_output(ours, theirs)
            outputs = their_stdout, their_stderr
            async with self.fork(ForkKind.CALL, outputs, descriptors, environment) as process:
                theirs.close()
                yield _Child(process, stdout, stderr)

    async def _run_call(self, child: "_Child", call: SandboxCall) -> SandboxResult:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        process = child.process
        answer_task = asyncio.create_task(process.ask(_encode_request(call), MAX_RESULT_BYTES))
        process.resources.callback(answer_task.cancel)
        excess_task = asyncio.create_task(child.wait_for_excess_output(self.limits.output_bytes))
        process.resources.callback(excess_task.cancel)
        done, _ = await asyncio.wait(
            {answer_task, excess_task, process.end_task},
            timeout=call.timeout_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        duration_seconds = loop.time() - started_at
        if done and excess_task not in done:
            # The exit follows the answer at once; few processes need to be killed.
            await asyncio.wait({answer_task, process.end_task}, timeout=_GRACE_SECONDS)
        process.kill()
        await process.wait_for_end()
        if not done:
            outcome = _timeout_result(call.timeout_seconds)
        elif excess_task in done:
            outcome = _failed_result(
                f"The tool wrote more than {self.limits.output_bytes} bytes of output."
            )
        else:
            outcome = _call_result(result_if_done(answer_task), process.end, self.limits)
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
        asyncio.get_running_loop().add_reader(fd, self._read)

    def read_lines(self) -> tuple[str, ...]:
        """The lines that the tool has written; call it when the tool has ended."""
        while len(self._buffer) < MAX_OUTPUT_BYTES and self._read():
            pass
        return tuple(self._buffer.decode(errors="replace").splitlines())

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)

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
class _Child:
    process: ForkedProcess
    stdout: _Output
    stderr: _Output

    async def wait_for_excess_output(self, max_bytes: int) -> None:
        """Return when the tool has written more than that."""
        more = asyncio.Event()
        for output in (self.stdout, self.stderr):
            output.on_data = more.set
        while self.stdout.bytes_written + self.stderr.bytes_written <= max_bytes:
            await more.wait()
            more.clear()


def _timeout_result(timeout_seconds: float) -> dict[str, Any]:
    error = f"The tool did not finish within {timeout_seconds:g} seconds."
    return {"status": "timed_out", "error": error}


def _failed_result(error: str) -> dict[str, Any]:
    return {"status": "failed", "error": error}


def _call_result(
    answer: dict[str, Any] | None, end: ProcessEnd | None, limits: SandboxLimits
) -> dict[str, Any]:
    if answer is None:
        outcome = _failed_result(_describe_end(end, limits))
        return {**outcome, "exceeded_limit": None if end is None else end.killed_for}
    if "value" in answer:
        return {"status": "finished", "value": answer["value"]}
    return _failed_result(str(answer.get("error")))


def _describe_end(end: ProcessEnd | None, limits: SandboxLimits) -> str:
    if end is None:
        return "The tool's process was lost."
    return end.describe("The tool", limits) or (
        f"The tool's process ended with exit code {end.exit_code} before it returned a value."
    )


def _open_output(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[_Output, int]:
    readable, writable = open_pipe(ours, theirs)
    output = _Output(readable)
    ours.callback(output.close)
    return output, writable
