"""Gives each request the connection that it came by: ``find_connection(scope)``."""

import time
from typing import Any

from starlette.types import Scope

from holdfast.ports.tool_connections import Connection

_STATE_KEY = "holdfast.connection"

Address = tuple[str, int]


def with_connection(
    app_state: dict[str, Any], client: Address | None, server: tuple[str, int | None] | None
) -> dict[str, Any]:
    """The state for the requests of a new connection. Uvicorn copies it into the scope of each request, so all of them
    share one object."""
    if client is None or server is None or server[1] is None:
        return app_state
    connection = Connection(client, (server[0], server[1]), time.monotonic())
    return {**app_state, _STATE_KEY: connection}


def find_connection(scope: Scope) -> Connection | None:
    """None for requests that came by no socket, such as those of tests in the same process."""
    found: Connection | None = scope.get("state", {}).get(_STATE_KEY)
    return found
