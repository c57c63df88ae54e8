"""Connections to MCP servers, shared by calls with equal endpoints.

The SDK is imported in a thread when the first call comes: it takes a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from holdfast.adapters.mcp.suspension import read_suspended_seconds
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.mcp_servers import Endpoint, RemoteTool
from holdfast.errors import McpTimedOut, McpUnavailable
from holdfast.loading import load_in_thread
from holdfast.ports.mcp import OnProgress, RemoteResult

if TYPE_CHECKING:
    from holdfast.adapters.mcp.connection import Connection
    from holdfast.adapters.mcp.opening import Opening
    from holdfast.adapters.mcp.session import OpenStdio, Session

T = TypeVar("T")


class ClientOptions(Struct, frozen=True, kw_only=True):
    connect_seconds: float = 30.0
    list_seconds: float = 30.0
    call_seconds: float = 60.0
    idle_seconds: float = 300.0
    max_connections: int = 200
    max_result_bytes: int = 32 * 1024**2


class PooledMcpClient:
    def __init__(
        self,
        options: ClientOptions,
        allowed: AllowedAddresses,
        *,
        open_stdio: "OpenStdio",
        lookup: Lookup | None = None,
        read_suspended_seconds: Callable[[], float] = read_suspended_seconds,
    ) -> None:
        self._options = options
        self._allowed = allowed
        self._open_stdio = open_stdio
        self._lookup = lookup or Lookup(allowed)
        self._read_suspended_seconds = read_suspended_seconds
        self._opening: Opening | None = None
        self._connections: dict[Endpoint, Connection] = {}
        # They were retired, and have not ended yet.
        self._closing: set[Connection] = set()
        self._room = asyncio.Event()
        self._is_closed = False

    @property
    def open_connections(self) -> int:
        """Those that are being closed too."""
        return len(self._connections) + len(self._closing)

    async def list_tools(self, endpoint: Endpoint) -> Sequence[RemoteTool]:
        async def run(session: "Session") -> list[RemoteTool]:
            return await session.list_tools()

        seconds = self._options.list_seconds
        return await self._ask(endpoint, "listing tools", run, seconds, is_repeatable=True)

    async def call(
        self,
        endpoint: Endpoint,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> RemoteResult:
        async def run(session: "Session") -> RemoteResult:
            return await session.call_tool(tool, arguments, on_progress)

        seconds = self._options.call_seconds
        return await self._ask(endpoint, f"executing tool {tool}", run, seconds)

    async def forget(self, server_id: str) -> None:
        for connection in list(self._connections.values()):
            if connection.endpoint.server_id == server_id:
                self._retire(connection)

    async def aclose(self) -> None:
        self._is_closed = True
        self._room.set()
        everything = [*self._connections.values(), *self._closing]
        await asyncio.gather(*(connection.end() for connection in everything))

    async def _ask(
        self,
        endpoint: Endpoint,
        doing: str,
        run: "Callable[[Session], Awaitable[T]]",
        seconds: float,
        *,
        is_repeatable: bool = False,
    ) -> T:
        opening = self._opening or await self._load()
        connection = self._find(endpoint) or await self._open(endpoint, opening)
        job = opening.build_job(endpoint, doing, run, seconds, is_repeatable=is_repeatable)
        connection.submit(job)
        return await job.future

    async def _load(self) -> "Opening":
        opening = await load_in_thread(self._build_opening)
        # Two calls may have loaded it at the same time.
        self._opening = self._opening or opening
        return self._opening

    def _build_opening(self) -> "Opening":
        from holdfast.adapters.mcp.opening import Opening  # noqa: PLC0415 - it takes a second, and most servers need it never

        return Opening(
            self._options,
            self._allowed,
            self._lookup,
            open_stdio=self._open_stdio,
            read_suspended_seconds=self._read_suspended_seconds,
        )

    def _find(self, endpoint: Endpoint) -> "Connection | None":
        found = self._connections.get(endpoint)
        return None if found is None or found.is_over or found.is_retired else found

    async def _open(self, endpoint: Endpoint, opening: "Opening") -> "Connection":
        try:
            async with asyncio.timeout(self._options.connect_seconds):
                while not self._make_room():
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            seconds = self._options.connect_seconds
            raise McpTimedOut(endpoint.server_name, "connecting", seconds) from None
        if self._is_closed:
            raise McpUnavailable(endpoint.server_name, "this server is stopping")
        # Another call may have opened it meanwhile.
        found = self._find(endpoint)
        if found is None:
            self._retire_older(endpoint)
            found = self._connections[endpoint] = opening.open(endpoint, self._note_free)
        return found

    def _make_room(self) -> bool:
        """Whether one more connection may be opened. If not, the one that was idle longest is closed."""
        busy = [connection for connection in self._closing if not connection.is_idle]
        if len(self._connections) + len(busy) < self._options.max_connections or self._is_closed:
            return True
        idle = [connection for connection in self._connections.values() if connection.is_idle]
        if idle:
            self._retire(min(idle, key=lambda connection: connection.last_used))
        return bool(idle)

    def _retire_older(self, endpoint: Endpoint) -> None:
        """Other headers, address or environment for the same server and caller: the old ones must not linger."""
        for connection in list(self._connections.values()):
            if _caller(connection.endpoint) == _caller(endpoint):
                self._retire(connection)

    def _retire(self, connection: "Connection") -> None:
        if self._connections.get(connection.endpoint) is connection:
            del self._connections[connection.endpoint]
        if not connection.is_over:
            self._closing.add(connection)
        connection.retire()

    def _note_free(self, connection: "Connection") -> None:
        if connection.is_over:
            self._closing.discard(connection)
            if self._connections.get(connection.endpoint) is connection:
                del self._connections[connection.endpoint]
        self._room.set()


def _caller(endpoint: Endpoint) -> tuple[str, str | None, str | None]:
    return endpoint.server_id, endpoint.agent_id, endpoint.user_id
