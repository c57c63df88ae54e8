"""Gives each request the connection that it came by: ``find_connection(scope)``."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from starlette.types import Scope
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from holdfast.ports.tool_connections import Connection

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _HttpProtocol
else:
    _HttpProtocol = AutoHTTPProtocol

_STATE_KEY = "holdfast.connection"


class ConnectionProtocol(_HttpProtocol):
    """Uvicorn copies ``app_state`` into the scope of each request, so all requests of a connection share its object."""

    app_state: dict[str, Any]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        if self.client is not None and self.server is not None and self.server[1] is not None:
            local = (self.server[0], self.server[1])
            connection = Connection(self.client, local, time.monotonic())
            self.app_state = {**self.app_state, _STATE_KEY: connection}


def find_connection(scope: Scope) -> Connection | None:
    """None for requests that came by no socket, such as those of tests in the same process."""
    found: Connection | None = scope.get("state", {}).get(_STATE_KEY)
    return found
