"""Tools. Which agents use them is in ``agents``."""

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.core.tools import Tool, ToolQuery


class Tools(Protocol):
    def add(self, tool: Tool) -> None:
        """Store a new tool. AlreadyExists if the organisation has a tool of that name."""
        ...

    def add_all(self, tools: Sequence[Tool]) -> None:
        """Store new tools. AlreadyExists if one of the names is taken."""
        ...

    def get(self, organization_id: str, tool_id: str) -> Tool:
        """Return the tool. NotFound: ``Tool with ID <id> not found``."""
        ...

    def find(self, organization_id: str, names: Collection[str]) -> Sequence[Tool]:
        """Return the tools of these names, sorted by name. Unknown names are left out."""
        ...

    def save(self, tool: Tool) -> None:
        """Replace the tool."""
        ...

    def save_all(self, tools: Sequence[Tool]) -> None:
        """Replace tools. Those that do not exist are ignored."""
        ...

    def delete(self, organization_id: str, tool_id: str) -> None:
        """Delete the tool and detach it from every agent."""
        ...

    def delete_all(self, organization_id: str, tool_ids: Collection[str]) -> None:
        """Delete tools and detach them from every agent. Those that do not exist are ignored."""
        ...

    def list(self, organization_id: str, query: ToolQuery) -> Sequence[Tool]:
        """Return one page of the tools that match."""
        ...

    def count(self, organization_id: str, query: ToolQuery) -> int:
        """Count the tools that match, on all pages."""
        ...
