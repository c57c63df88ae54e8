"""MCP servers that do what no library lets a server do: over HTTP in bytes, and in memory in messages.

    async with RawMcpServer(answer).run() as server:     # `answer` gets each call as an `Exchange`
        ... server.endpoint ...

Both speak the handshake generation.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from holdfast.core.mcp_servers import Endpoint, Transport

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

SESSION = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"
NOTHING = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(message: Any, event_id: int = 0) -> bytes:
    """An event of a stream, as a chunk. Without a message it only has an id, by which the rest can be asked for."""
    data = b"" if message is None else json.dumps(message).encode()
    first = b"id: %d\nretry: 0\n" % event_id if event_id else b""
    return chunk(first + b"data: " + data + b"\n\n")


class Exchange:
    """A request, and the connection that it came on."""

    def __init__(
        self,
        message: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.message = message
        self._reader = reader
        self._writer = writer

    @property
    def tool(self) -> str:
        return str(self.message["params"]["name"])

    def answer(self, headers: bytes = b"", **members: Any) -> None:
        """``members``: the result, or the error."""
        data = json.dumps({"jsonrpc": "2.0", "id": self.message["id"], **members}).encode()
        self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (headers, len(data), data)
        )

    def succeed(self, text: str) -> None:
        self.answer(result={"content": [{"type": "text", "text": text}]})

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    async def wait_for_end(self) -> None:
        """Until the client closes the connection."""
        await self._reader.read()


Answer = Callable[[Exchange], Awaitable[None]]


class RawMcpServer:
    """``on_call`` answers calls, ``on_get`` a GET, and ``on_answer`` what the client answers to requests of the server."""

    def __init__(
        self, on_call: Answer, on_get: Answer | None = None, on_answer: Answer | None = None
    ) -> None:
        self._on_call = on_call
        self._on_get = on_get
        self._on_answer = on_answer
        self.gets = 0
        self.messages: list[dict[str, Any]] = []
        self._listening: asyncio.Server
        self.endpoint: Endpoint

    @asynccontextmanager
    async def run(self) -> AsyncIterator["RawMcpServer"]:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._listening.sockets[0].getsockname()[1]
        self.endpoint = Endpoint(
            server_id="mcp_server-1",
            server_name="raw",
            transport=Transport.STREAMABLE_HTTP,
            url=f"http://127.0.0.1:{port}/mcp",
        )
        try:
            yield self
        finally:
            self._listening.close()

    def accept_no_more(self) -> None:
        """Like a server that is being replaced: it ends what it has begun."""
        self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                message = json.loads(await reader.readexactly(_read_length(head)) or b"{}")
                await self._answer(head, Exchange(message, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, exchange: Exchange) -> None:
        method = exchange.message.get("method")
        if head.startswith(b"GET"):
            self.gets += 1
            if self._on_get is not None:
                await self._on_get(exchange)
            else:
                exchange.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
            return
        self.messages.append(exchange.message)
        if method == "initialize":
            exchange.answer(b"mcp-session-id: 1\r\n", result=SESSION)
        elif method == "tools/call":
            await self._on_call(exchange)
        elif method is None and self._on_answer is not None:
            await self._on_answer(exchange)
        elif method is not None and "id" in exchange.message:
            exchange.answer(error={"code": types.METHOD_NOT_FOUND, "message": "no"})
        else:
            exchange.write(NOTHING)


def _read_length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return sum(int(line[15:]) for line in lines if line.startswith(b"content-length:"))


class RawSseServer:
    """The older transport. ``on_message`` gets each message, and the stream on which answers are said."""

    def __init__(self, on_message: Callable[[dict[str, Any], "SseStream"], None]) -> None:
        self._on_message = on_message
        self.streams: list[SseStream] = []
        self.endpoint: Endpoint

    @asynccontextmanager
    async def run(self) -> AsyncIterator["RawSseServer"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            self.endpoint = Endpoint(
                server_id="mcp_server-1",
                server_name="raw",
                transport=Transport.SSE,
                url=f"http://127.0.0.1:{port}/sse",
            )
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    writer.write(STREAM + chunk(b"event: endpoint\ndata: /messages\n\n"))
                    self.streams.append(SseStream(writer, len(self.streams)))
                    continue
                message = json.loads(await reader.readexactly(_read_length(head)))
                writer.write(NOTHING)
                self._on_message(message, self.streams[-1])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class SseStream:
    def __init__(self, writer: asyncio.StreamWriter, number: int) -> None:
        self._writer = writer
        # Of the streams of a server, the first is 0.
        self.number = number

    def answer(self, message: dict[str, Any], **members: Any) -> None:
        self._writer.write(event({"jsonrpc": "2.0", "id": message["id"], **members}))

    def end(self) -> None:
        self._writer.write(STREAM_END)


Sender = MemoryObjectSendStream[SessionMessage | Exception]
Receiver = MemoryObjectReceiveStream[SessionMessage]
Serve = Callable[[Sender, Receiver], Awaitable[None]]


def open_in_memory(
    serve: Serve,
) -> Callable[[Endpoint], AbstractAsyncContextManager["TransportStreams"]]:
    """A transport like that of a program. ``serve`` is run after each handshake; what it raises breaks the transport."""

    @asynccontextmanager
    async def open_streams(endpoint: Endpoint) -> AsyncIterator["TransportStreams"]:
        del endpoint
        sender, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, receiver = anyio.create_memory_object_stream[SessionMessage](0)

        async def work() -> None:
            await _shake_hands(sender, receiver)
            await serve(sender, receiver)

        async with sender, read, write, receiver, anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            yield read, write
            tasks.cancel_scope.cancel()

    return open_streams


async def _shake_hands(sender: Sender, receiver: Receiver) -> None:
    async for item in receiver:
        match item.message:
            case types.JSONRPCRequest(method="initialize", id=request_id):
                answer = types.JSONRPCResponse(jsonrpc="2.0", id=request_id, result=SESSION)
                await sender.send(SessionMessage(answer))
            case types.JSONRPCRequest(id=request_id):
                error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="no")
                refusal = types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
                await sender.send(SessionMessage(refusal))
            case _:
                return
