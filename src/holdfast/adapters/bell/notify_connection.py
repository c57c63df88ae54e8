"""A connection to PostgreSQL for notifications: made when it is needed, and one that another thread can break off."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from holdfast.adapters.postgres_session import KEEPALIVE_OPTIONS, copy_keepalive
from holdfast.errors import SettingInvalid

# A new connection is given up early, because wake-ups are worth little when they are late. Options in the URL take
# precedence.
_CONNECT_SECONDS: Final = 3
_CONNECT_OPTIONS: Final = KEEPALIVE_OPTIONS | {"connect_timeout": _CONNECT_SECONDS}
# What using a connection can raise: also if no descriptor or thread is free, or if another program sends bytes that are
# no text.
FAILURES: Final = (psycopg.Error, OSError, RuntimeError, UnicodeError)


class NotifyConnection:
    """One thread uses the connection; any thread may ``interrupt`` or ``end`` it. SettingInvalid if the URL cannot be
    read."""

    def __init__(self, url: str, *, name: str) -> None:
        self._parameters = {"application_name": name, **_CONNECT_OPTIONS, **_parse_url(url)}
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        # A descriptor of our own for the same socket: libpq may close its own one at any time, and the number may
        # then belong to something else.
        self._socket: socket.socket | None = None
        self._is_ended = False

    def connect(self) -> psycopg.Connection[Any]:
        """Return the connection, which is made now if there is none. One of ``FAILURES`` if that fails."""
        if self._connection is not None:
            return self._connection
        self._require_not_ended()
        # A transaction pooler cannot handle prepared statements.
        made = psycopg.connect(autocommit=True, prepare_threshold=None, **self._parameters)
        with self._lock:
            self._connection = made
            self._socket = socket.socket(fileno=os.dup(made.fileno()))
        self._require_not_ended()
        with self.limit(_CONNECT_SECONDS):
            copy_keepalive(made)
        return made

    def drop(self) -> None:
        """Close the connection; the next ``connect`` makes another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def interrupt(self) -> None:
        """Break the connection off: the thread that waits for an answer gets an error at once."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Break the connection off, and make no other."""
        with self._lock:
            self._is_ended = True
        self.interrupt()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Break the connection off if the block takes longer: no timeout of libpq ends a statement whose answer does
        not come."""
        timer = threading.Timer(seconds, self.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _require_not_ended(self) -> None:
        if self._is_ended:
            raise psycopg.OperationalError("No connection is wanted any more.")


def _parse_url(url: str) -> dict[str, Any]:
    """The parameters of a connection, as the store has them."""
    try:
        address = make_url(url).set(drivername="postgresql+psycopg")
    except ArgumentError as error:
        raise SettingInvalid("The address of the database cannot be read.") from error
    _, parameters = address.get_dialect()().create_connect_args(address)
    return dict(parameters)
