"""Tells the connections of tools from those of other programs, for a server that asks for no password."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Connection:
    """One accepted TCP connection. Each address is a host and a port."""

    peer: tuple[str, int]
    local: tuple[str, int]
    accepted_at: float
    """Monotonic seconds."""
    may_be_tool: bool | None = None
    """What was found out about it; None: nobody has asked."""


class ToolConnections(Protocol):
    async def may_be_tool(self, connection: Connection) -> bool:
        """Whether a process of a tool may have opened the connection. True also if that cannot be found out."""
        ...
