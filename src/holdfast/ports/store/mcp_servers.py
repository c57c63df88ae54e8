"""MCP servers. Their tools are in ``tools``: a tool has the id of its server, and is deleted with it."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.mcp_servers import McpServer
from holdfast.core.tools import Tool


class McpServers(Protocol):
    """Secrets are encrypted at rest."""

    def add(self, server: McpServer) -> None:
        """Store a new server. AlreadyExists if the organisation has one of that name."""
        ...

    def get(self, organization_id: str, server_id: str) -> McpServer:
        """Return the server. NotFound: ``MCPServer not found with id='<id>'``."""
        ...

    def get_for_update(self, organization_id: str, server_id: str) -> McpServer:
        """As ``get``, and lock the server until the end of the transaction. For whoever saves what was read."""
        ...

    def find_by_name(self, organization_id: str, name: str) -> McpServer | None:
        """Return the server of that name; None if there is none."""
        ...

    def list(self, organization_id: str) -> Sequence[McpServer]:
        """Return all servers, oldest first."""
        ...

    def save(self, server: McpServer) -> None:
        """Replace the server. AlreadyExists if another one has its name."""
        ...

    def delete(self, organization_id: str, server_id: str) -> None:
        """Delete the server with its tools, which agents lose, and its OAuth sessions."""
        ...

    def tools(self, organization_id: str, server_id: str) -> Sequence[Tool]:
        """Return all tools of the server, sorted by name."""
        ...
