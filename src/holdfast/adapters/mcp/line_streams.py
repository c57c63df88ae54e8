"""Messages of MCP as lines of JSON: from the stdout of a program to the streams of the MCP SDK, and back to its stdin.

Lines that are no messages are skipped: many programs print something to stdout. No line may be longer than the limit.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, jsonrpc_message_adapter

from holdfast.adapters.mcp.failures import TransportFailed
from holdfast.adapters.mcp.program_lines import pace
from holdfast.adapters.sandbox.programs import Program

_CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class LineStreams:
    def __init__(
        self,
        program: Program,
        max_message_bytes: int,
        explain_end: Callable[[str | None], Awaitable[TransportFailed]],
    ) -> None:
        """``explain_end`` says why there will be no more messages, given a problem with them if there is one."""
        self._program = program
        self._max_message_bytes = max_message_bytes
        self._explain_end = explain_end
        # What the session reads and writes, and the other ends of the two.
        self.read_stream: MemoryObjectReceiveStream[SessionMessage | Exception]
        self.write_stream: MemoryObjectSendStream[SessionMessage]
        self._incoming, self.read_stream = anyio.create_memory_object_stream[
            SessionMessage | Exception
        ](0)
        self.write_stream, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    def close(self) -> None:
        """End the traffic. What the program still writes is read and dropped, so that it never waits for us."""
        self.read_stream.close()
        self.write_stream.close()

    def release(self) -> None:
        """Close what is left when nothing is read or written any more."""
        self.close()
        self._incoming.close()
        self._outgoing.close()

    async def read_messages(self) -> None:
        """Pass on what the program writes, until it has closed its stdout."""
        with self._incoming:
            problem = await self._pass_messages()
            with contextlib.suppress(*_CLOSED):
                if self.read_stream.statistics().open_receive_streams:
                    await self._incoming.send(await self._explain_end(problem))
        while await self._program.read_stdout():  # noqa: ASYNC110 - it gives way to others, and waits for nothing
            await asyncio.sleep(0)

    async def _pass_messages(self) -> str | None:
        """Returns the problem with the messages. None: the program has closed its stdout, or nobody wants them any more."""
        lines = _Lines(self._max_message_bytes)
        skipped_bytes = 0
        while chunk := await self._program.read_stdout():
            # A process that writes without end must not stop all others.
            async for line in pace(lines.split(chunk)):
                message = _parse(line)
                if message is None:
                    skipped_bytes += len(line) + 1
                    continue
                if not isinstance(message.message, JSONRPCNotification):
                    # Those can be sent without end between other lines.
                    skipped_bytes = 0
                try:
                    await self._incoming.send(message)
                except _CLOSED:
                    return None
            if lines.is_too_long:
                return f"The server sent a message of more than {self._max_message_bytes} bytes."
            if skipped_bytes > self._max_message_bytes:
                return f"The server wrote more than {self._max_message_bytes} bytes to stdout that are no messages."
        return None

    async def write_messages(self) -> None:
        """Pass on what the session writes. If the program does not read any more, its end is what the session is told."""
        with self._outgoing, contextlib.suppress(BrokenPipeError):
            async for item in self._outgoing:
                await self._program.write(_encode(item))


@dataclass(slots=True)
class _Lines:
    """Splits what arrives into lines, and keeps at most one that is not complete."""

    max_bytes: int
    is_too_long: bool = False
    _rest: bytearray = field(default_factory=bytearray)

    def split(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that are complete now, up to one that is too long."""
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            line = bytes(self._rest + end) if self._rest else end
            self._rest.clear()
            if self._has_excess(line):
                return
            yield line
        self._rest += rest
        self._has_excess(self._rest)

    def _has_excess(self, line: bytes | bytearray) -> bool:
        self.is_too_long = self.is_too_long or len(line) > self.max_bytes
        return self.is_too_long


def _encode(item: SessionMessage) -> bytes:
    text = json.dumps(
        item.message.model_dump(by_alias=True, exclude_unset=True), ensure_ascii=False
    )
    # UTF-8 cannot encode lone surrogates; replacing them is better than losing the connection.
    return text.encode("utf-8", "replace") + b"\n"


def _parse(line: bytes) -> SessionMessage | None:
    if not line.lstrip().startswith(b"{"):
        # Trying to parse it takes much longer.
        return None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None
    return SessionMessage(message)
