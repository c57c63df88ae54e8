"""A real MCP server on loopback, in a thread of its own, which a test steers while it runs: see ``mcp_tools`` for its tools.

    with McpTestServer(generation="handshake") as server:     # or `async with`
        ... server.url ...
        await server.wait_for(lambda: server.calls_of("wait"))
        server.release()

What it received is in ``requests`` (headers, JSON-RPC messages) and ``calls``. ``token`` is the bearer token that it wants;
``intercept`` answers a request in its place; ``other_paths`` is an ASGI application for all other paths. ``stop`` (or ``kill``,
which resets the connections) and ``start`` restart it on the same port: it has then forgotten its sessions.

``python -m tests.support.mcp_server`` is the same over stdio: see ``mcp_stdio_server``.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import uvicorn
from mcp.server.runner import serve_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.support.mcp_stdio_server import main
from tests.support.mcp_tools import ToolSet
from tests.support.waiting import WAIT_SECONDS, eventually

Generation = Literal["modern", "handshake"]
TransportKind = Literal["streamable_http", "sse"]

# Tests reach it by names other than 127.0.0.1 too.
_ANY_HOST = TransportSecuritySettings(enable_dns_rebinding_protection=False)


@dataclass(frozen=True, slots=True)
class McpRequest:
    method: str
    path: str
    headers: Mapping[str, str]
    # The JSON-RPC message of a POST.
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def rpc_method(self) -> str | None:
        return self.message.get("method")


@dataclass(frozen=True, slots=True)
class McpAnswer:
    """What a test answers in the server's place. ``hold``: nothing, until the client goes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    hold: bool = False


class McpTestServer(ToolSet):
    def __init__(
        self,
        *,
        generation: Generation = "modern",
        transport: TransportKind = "streamable_http",
        stateless: bool = False,
        json_response: bool = False,
        token: str | None = None,
        host: str = "127.0.0.1",
        other_paths: ASGIApp | None = None,
    ) -> None:
        super().__init__()
        self.generation = generation
        self.transport = transport
        self.stateless = stateless
        self.json_response = json_response
        self.token = token
        # What WWW-Authenticate says when the token is not right.
        self.challenge = 'Bearer error="invalid_token", error_description="The token is not valid"'
        self.host = host
        self.port = 0
        self.other_paths = other_paths
        self.requests: list[McpRequest] = []
        self.intercept: Callable[[McpRequest], McpAnswer | None] = lambda request: None
        self._running: _RunningServer | None = None

    @property
    def path(self) -> str:
        return "/sse" if self.transport == "sse" else "/mcp"

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def open_connections(self) -> int:
        """How many TCP connections are open."""
        return 0 if self._running is None else self._running.open_connections

    def start(self) -> None:
        """Start it: on a free port at first, on the same later."""
        assert self._running is None
        self.is_stopping = False
        # With the protocol named, asyncio turns Nagle's algorithm off, which would add 40 ms to each answer.
        listening = socket.socket(proto=socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self.host, self.port))
        listening.listen(512)
        self.port = listening.getsockname()[1]
        self._running = _RunningServer(self._build(), listening)

    def stop(self) -> None:
        """Close all connections and forget all sessions."""
        self._end(abort=False)

    def kill(self) -> None:
        """Like a process that was killed: every connection is reset at once."""
        self._end(abort=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    async def wait_for(self, fact: Callable[[], object]) -> None:
        await eventually(lambda: bool(fact()))

    def hold(self) -> None:
        """Answer no new request."""
        self.intercept = lambda request: McpAnswer(hold=True)

    def answer(self) -> None:
        """Answer again, after ``hold`` or another ``intercept``."""
        self.intercept = lambda request: None

    def requests_of(self, rpc_method: str) -> list[McpRequest]:
        return [request for request in list(self.requests) if request.rpc_method == rpc_method]

    def _end(self, *, abort: bool) -> None:
        self.is_stopping = True
        running, self._running = self._running, None
        if running is not None:
            running.end(abort=abort)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _build(self) -> "_Application":
        return _SseApplication(self) if self.transport == "sse" else _HttpApplication(self)


class _RunningServer:
    """uvicorn in a thread."""

    def __init__(self, application: "_Application", listening: socket.socket) -> None:
        self._application = application
        self._listening = listening
        config = uvicorn.Config(
            application, log_config=None, lifespan="off", timeout_keep_alive=600, ws="none"
        )
        self._server = uvicorn.Server(config)
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="mcp-test-server", daemon=True
        )
        self._thread.start()
        assert self._ready.wait(WAIT_SECONDS), "the MCP server of the test did not start"

    @property
    def open_connections(self) -> int:
        return len(self._server.server_state.connections)

    def end(self, *, abort: bool) -> None:
        self._loop.call_soon_threadsafe(self._close, abort)
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the MCP server of the test did not stop"

    def _close(self, abort: bool) -> None:
        for connection in list(self._server.server_state.connections):
            connection.transport.abort() if abort else connection.transport.close()
        # A client that connects meanwhile finds nobody.
        for server in self._server.servers:
            server.close()
        self._server.should_exit = self._server.force_exit = True

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._ready.set)
        async with self._application:
            await self._server.serve(sockets=[self._listening])


class _Application:
    """An ASGI application that records each request and checks the token before the MCP server gets it."""

    def __init__(self, server: McpTestServer) -> None:
        self._server = server
        self._mcp = server.build_server()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not path.startswith(("/mcp", "/sse", "/messages")) and self._server.other_paths:
            await self._server.other_paths(scope, receive, send)
            return
        body, receive = await _read_body(scope, receive)
        request = _describe(scope, body)
        self._record(request)
        answer = self._server.intercept(request) or self._check(request)
        if answer is None:
            await self.serve(scope, receive, send)
        elif answer.hold:
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            response = Response(answer.body, answer.status, dict(answer.headers))
            await response(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def _record(self, request: McpRequest) -> None:
        self._server.requests.append(request)
        if request.rpc_method == "notifications/cancelled":
            self._server.cancelled_requests.add(request.message["params"]["requestId"])

    def _check(self, request: McpRequest) -> McpAnswer | None:
        server = self._server
        if server.token and request.headers.get("authorization") != f"Bearer {server.token}":
            headers = {"www-authenticate": server.challenge, "content-type": "application/json"}
            return McpAnswer(401, b'{"error":"invalid_token"}', headers)
        version = request.headers.get("mcp-protocol-version")
        if server.generation == "handshake" and version in MODERN_PROTOCOL_VERSIONS:
            # As servers of that time answer.
            text = f"Bad Request: Unsupported protocol version: {version}"
            error = {"code": -32600, "message": text}
            answer = {"jsonrpc": "2.0", "id": "server-error", "error": error}
            return McpAnswer(400, json.dumps(answer).encode())
        return None


class _HttpApplication(_Application):
    def __init__(self, server: McpTestServer) -> None:
        super().__init__(server)
        self._stack = AsyncExitStack()
        self._manager = StreamableHTTPSessionManager(
            self._mcp,
            json_response=server.json_response,
            stateless=server.stateless,
            security_settings=_ANY_HOST,
        )

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._manager.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()


class _SseApplication(_Application):
    def __init__(self, server: McpTestServer) -> None:
        super().__init__(server)
        self._streams = SseServerTransport("/messages/", _ANY_HOST)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/messages"):
            await self._streams.handle_post_message(scope, receive, send)
        elif scope["method"] != "GET":
            await Response(status_code=405)(scope, receive, send)
        else:
            async with self._streams.connect_sse(scope, receive, send) as streams:
                await serve_loop(self._mcp, *streams, lifespan_state={})


async def _read_body(scope: Scope, receive: Receive) -> tuple[bytes, Receive]:
    """The body, and a ``receive`` that gives it once more."""
    if scope["method"] != "POST":
        return b"", receive
    body = await Request(scope, receive).body()
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return body, receive_again


def _describe(scope: Scope, body: bytes) -> McpRequest:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        message = json.loads(body) if body else {}
    except ValueError:
        message = {}
    return McpRequest(
        scope["method"], scope["path"], headers, message if isinstance(message, dict) else {}
    )


if __name__ == "__main__":
    main()
