"""A gate at which a tool waits (see ``tool_sources.WAIT_AT_GATE``): so a test knows that the tool runs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

GATE_SECONDS = 30.0


class ToolGate:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(GATE_SECONDS)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @contextmanager
    def wait_for_tool(self) -> Iterator[socket.socket]:
        """Wait until a tool comes to the gate; it may go on at the end of the block."""
        connection, _ = self._listener.accept()
        connection.settimeout(GATE_SECONDS)
        with connection:
            yield connection

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
