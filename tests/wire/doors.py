"""A door at which a tool of ours waits (see ``sources.KNOCK``): so a test knows that the tool runs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

KNOCK_SECONDS = 30.0


class Door:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(KNOCK_SECONDS)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @contextmanager
    def knocked(self) -> Iterator[socket.socket]:
        """Wait until somebody knocks; at the end of the block the door is opened."""
        visitor, _ = self._listener.accept()
        visitor.settimeout(KNOCK_SECONDS)
        with visitor:
            yield visitor

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
