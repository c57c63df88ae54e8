"""Gives each request the connection that it came by: ``find_connection(scope)``."""

import asyncio
import time
from typing import Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.ports.tool_connections import Connection

_STATE_KEY: Final = "holdfast.connection"


class ConnectionProtocol(HttpToolsProtocol):
    """Uvicorn copies ``app_state`` into the scope of each request, so all requests of a connection share its object."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        if self.client is not None and self.server is not None and self.server[1] is not None:
            local = (self.server[0], self.server[1])
            connection = Connection(self.client, local, time.monotonic())
            self.app_state = {**self.app_state, _STATE_KEY: connection}


def find_connection(scope: Scope) -> Connection | None:
    """None for requests that came by no socket, such as those of tests in the same process."""
    found: Connection | None = scope.get("state", {}).get(_STATE_KEY)
    return found
