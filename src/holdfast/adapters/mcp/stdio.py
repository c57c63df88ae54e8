"""Runs MCP servers that are programs, and talks to them over their standard streams.

Each connection has a process of its own in the tools' sandbox: with its limits, without the server's environment, and
gone when the connection closes or its owner dies. Messages are lines of JSON (`line_streams.py`).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.mcp.failures import TransportFailed
from holdfast.adapters.mcp.program_lines import StderrLines, pace
from holdfast.adapters.sandbox.environments import finish_despite_cancel
from holdfast.adapters.sandbox.programs import CannotRun, Program, run_program
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.core.mcp_servers import Endpoint
from holdfast.errors import BackendError
from holdfast.ports.sandbox import SandboxLimits

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from holdfast.adapters.mcp.line_streams import LineStreams

GRACE_SECONDS: Final = 2.0
"""How long a process has to end when its stdin is closed. Then it is asked to by SIGTERM, and has half as long."""

_FLUSH_SECONDS: Final = 0.5
"""How long the last messages may take to be written before stdin is closed."""

_END_SECONDS: Final = 0.5
"""How long to wait for the end of a process that has closed its stdout, and for its last line on stderr."""

_KEPT_LINES: Final = 20

log = logging.getLogger(__name__)


class StdioServers:
    def __init__(
        self,
        sandbox: SubprocessSandbox,
        *,
        max_message_bytes: int,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._sandbox = sandbox
        self._max_message_bytes = max_message_bytes
        self._grace_seconds = grace_seconds

    @contextlib.asynccontextmanager
    async def open(self, endpoint: Endpoint) -> "AsyncIterator[TransportStreams]":
        """Start the process of the endpoint; the streams of its messages. The process is dead at the end.

        TransportFailed if it cannot be started. If the process ends by itself, or breaks the protocol, the stream of what
        it says ends with a TransportFailed; and this raises the same if the session then failed.
        """
        # It imports the MCP SDK.
        from holdfast.adapters.mcp.line_streams import LineStreams  # noqa: PLC0415 - see above

        stack = contextlib.AsyncExitStack()
        try:
            program = await self._start(endpoint, stack)
            connection = _Connection(endpoint, program, self._sandbox.limits)
            streams = LineStreams(program, self._max_message_bytes, connection.explain_end)
            connection.start(streams, stack, self._grace_seconds)
            try:
                yield streams.read_stream, streams.write_stream
            except Exception as error:
                if connection.failure is not None and error is not connection.failure:
                    raise connection.failure from error
                raise
        finally:
            await finish_despite_cancel(stack.aclose())

    async def _start(self, endpoint: Endpoint, stack: contextlib.AsyncExitStack) -> Program:
        words = [endpoint.command or "", *endpoint.args]
        try:
            return await stack.enter_async_context(
                run_program(self._sandbox, words, dict(endpoint.env))
            )
        except (CannotRun, BackendError) as error:
            raise TransportFailed(f"{str(error).removesuffix('.')}.") from error


@dataclass(slots=True)
class _Connection:
    endpoint: Endpoint
    program: Program
    limits: SandboxLimits
    failure: TransportFailed | None = None
    _last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _stderr_task: asyncio.Task[None] | None = None

    def start(
        self, streams: "LineStreams", stack: contextlib.AsyncExitStack, grace_seconds: float
    ) -> None:
        """Begin to exchange messages; ``stack`` ends that, and the process."""
        stack.callback(streams.release)
        self._stderr_task = _start_task(self._read_stderr(), stack)
        # It reads until the process has ended, or the process could not write what it still wants to write.
        _start_task(streams.read_messages(), stack)
        writer = _start_task(streams.write_messages(), stack)

        async def stop() -> None:
            streams.close()
            await asyncio.wait({writer}, timeout=_FLUSH_SECONDS)
            writer.cancel()
            await asyncio.wait({writer})
            await self.program.stop(grace_seconds)

        stack.push_async_callback(stop)

    async def explain_end(self, problem: str | None) -> TransportFailed:
        """Why there will be no more messages: a problem with them, or the end of the process."""
        if problem is None:
            await self.program.process.wait_for_end(_END_SECONDS)
            if self._stderr_task is not None:
                await asyncio.wait({self._stderr_task}, timeout=_END_SECONDS)
        facts = [problem or self._describe_end()]
        if self._last_lines:
            facts.append(f"The last line on its stderr: {self._last_lines[-1]}")
        self.failure = TransportFailed(" ".join(facts))
        extra = {"server": self.endpoint.server_name, "reason": str(self.failure)}
        log.warning("mcp.process_failed", extra=extra)
        return self.failure

    def _describe_end(self) -> str:
        end = self.program.process.end
        if end is None:
            return "The server has closed its stdout."
        how = end.describe("The server", self.limits)
        return how or f"The server's process ended with exit code {end.exit_code}."

    async def _read_stderr(self) -> None:
        lines = StderrLines(self.endpoint)
        extra = {"server": self.endpoint.server_name}
        is_open = True
        while is_open:
            chunk = await self.program.read_stderr()
            is_open = bool(chunk)
            # A process that writes without end must not stop all others.
            async for line in pace(lines.split(chunk)):
                if line:
                    self._last_lines.append(line)
                    log.debug("mcp.process_stderr", extra={**extra, "line": line})


def _start_task(
    work: Coroutine[Any, Any, None], stack: contextlib.AsyncExitStack
) -> asyncio.Task[None]:
    """A task that ``stack`` cancels, and waits for."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.wait({task})

    stack.push_async_callback(end)
    return task
