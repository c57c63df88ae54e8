"""Runs a program that is no tool's code in a process of the sandbox, for as long as it is needed: with the limits, the
privileges and the folder of a tool call.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.adapters.sandbox.fork_server import ForkKind
from holdfast.adapters.sandbox.fork_server_pool import inherited_environment
from holdfast.adapters.sandbox.forked_process import ForkedProcess, open_pipe
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox

_CHUNK_BYTES: Final = 64 * 1024
_MAX_ANSWER_BYTES: Final = 4096


class CannotRun(OSError):
    """The program cannot be run. The text says why, as the end of a sentence."""


class Program:
    """A program that runs. Its streams do not block; each has one reader or writer at a time."""

    def __init__(
        self,
        process: ForkedProcess,
        stdin: int,
        outputs: tuple[int, int],
        close_stdin: Callable[[], None],
    ) -> None:
        self.process = process
        self._stdin = stdin
        self._stdout, self._stderr = outputs
        self._close_stdin = close_stdin

    async def write(self, data: bytes) -> None:
        """Write all of it to stdin. BrokenPipeError if the program has closed it."""
        rest = memoryview(data)
        loop = asyncio.get_running_loop()
        while rest:
            try:
                rest = rest[os.write(self._stdin, rest) :]
            except BlockingIOError:
                await _wait_for(self._stdin, loop.add_writer, loop.remove_writer)

    async def read_stdout(self) -> bytes:
        """What it has written to stdout since the last time; empty at the end."""
        return await _read(self._stdout)

    async def read_stderr(self) -> bytes:
        return await _read(self._stderr)

    async def stop(self, grace_seconds: float) -> None:
        """Close stdin, by which a program knows that it is not needed any more; ask it to end if it does not; and kill it.
        Nobody may write any more. The first step has so many seconds, and the second half as many."""
        self._close_stdin()
        if await self.process.wait_for_end(grace_seconds):
            return
        self.process.terminate()
        await self.process.wait_for_end(grace_seconds / 2)
        self.process.kill()


@contextlib.asynccontextmanager
async def run_program(
    sandbox: SubprocessSandbox, words: Sequence[str], env: Mapping[str, str]
) -> AsyncIterator[Program]:
    """The program, which is killed at the end, with all that it started. It sees nothing of the server's environment except
    paths, language and time zone, and ``env``. CannotRun if there is no such program; BackendError if the machine
    cannot start processes."""
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        stdout, their_stdout = open_pipe(ours, theirs)
        stderr, their_stderr = open_pipe(ours, theirs)
        with contextlib.ExitStack() as input_:
            stdin, their_stdin = open_pipe(input_, theirs, is_input=True)
            close_stdin = ours.enter_context(input_.pop_all()).close
        outputs = their_stdout, their_stderr
        async with sandbox.fork(ForkKind.PROGRAM, outputs, (their_stdin,)) as process:
            theirs.close()
            request = {"program": list(words), "env": {**inherited_environment(), **env}}
            answer = await process.ask(json.dumps(request).encode(), _MAX_ANSWER_BYTES)
            process.channel.close()
            if answer is not None:
                raise CannotRun(str(answer.get("error")))
            yield Program(process, stdin, (stdout, stderr), close_stdin)


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            await _wait_for(fd, loop.add_reader, loop.remove_reader)


async def _wait_for(fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    """Wait until the descriptor can be used."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, _set_ready, ready)
    try:
        await ready
    finally:
        remove(fd)


def _set_ready(ready: "asyncio.Future[Any]") -> None:
    if not ready.done():
        ready.set_result(None)
