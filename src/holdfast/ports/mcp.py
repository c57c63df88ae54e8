"""MCP servers: listing and calling the tools of other programs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.mcp_servers import Endpoint, RemoteTool
from holdfast.core.messages import VisiblePart
from holdfast.errors import McpUnavailable


class ToolProgress(Struct, frozen=True):
    """How far a call has come, as the server says. ``total`` None: not known."""

    progress: float
    total: float | None = None
    message: str | None = None


OnProgress = Callable[[ToolProgress], None]


class RemoteResult(Struct, frozen=True):
    """What a call has returned. ``is_error``: the tool says that it failed."""

    content: tuple[VisiblePart, ...]
    is_error: bool = False


class McpClient(Protocol):
    """Connections are opened when they are needed, shared by calls with equal endpoints, and closed when nobody has used
    them for a while. A lost session is opened again by the next call.

    Each method has its own time limit: McpTimedOut. McpUnavailable if there is no connection: then the call has not
    begun. McpUnauthorized if the server wants (other) credentials, which is an McpUnavailable too."""

    async def list_tools(self, endpoint: Endpoint) -> Sequence[RemoteTool]:
        """Return all tools of the server."""
        ...

    async def call(
        self,
        endpoint: Endpoint,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> RemoteResult:
        """Call a tool. Cancelling this cancels the call at the server, in the way of the negotiated protocol, and leaves
        the connection to others. McpCallLost if the connection was lost while the call ran. An error that the server
        gives for the call is a result with ``is_error``."""
        ...

    async def forget(self, server_id: str) -> None:
        """Close the connections to a server that was changed or deleted. Calls in progress end first."""
        ...

    async def aclose(self) -> None:
        """Close all connections and end all processes."""
        ...


class _NoMcp:
    async def list_tools(self, endpoint: Endpoint) -> Sequence[RemoteTool]:
        raise McpUnavailable(endpoint.server_name, "this server has no MCP client")

    async def call(
        self,
        endpoint: Endpoint,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> RemoteResult:
        del tool, arguments, on_progress
        raise McpUnavailable(endpoint.server_name, "this server has no MCP client")

    async def forget(self, server_id: str) -> None:
        pass

    async def aclose(self) -> None:
        pass


NO_MCP: McpClient = _NoMcp()


class ConfiguredServer(Struct, frozen=True, kw_only=True):
    """A server of the operator's file: how it is reached. Values may have placeholders."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str | None = None
    headers: Mapping[str, str] = {}
    # For a URL: SSE, the older kind of HTTP.
    is_sse: bool = False

    def __repr__(self) -> str:
        return f"ConfiguredServer({self.name!r}, …)"


class McpOptions(Struct, frozen=True, kw_only=True):
    """What the operator allows."""

    # Whether callers of the API may name commands that the server runs.
    stdio_over_api: bool = False
    # Which tools need approval by default: ``never``, ``destructive`` or ``always``.
    approve: str = "never"
    # The servers of the operator's file, by name.
    configured: Mapping[str, ConfiguredServer] = {}
    # Where browsers reach this server, for the end of an OAuth login; None: the address of the request that began it.
    public_url: str | None = None


DEFAULT_MCP_OPTIONS = McpOptions()
