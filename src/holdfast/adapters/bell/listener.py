"""The thread that receives the rings of other servers, by LISTEN.

A connection can die without a sign, and a pooler can swallow notifications. So the server sends itself a notification
now and then, which must arrive.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg

from holdfast.adapters.bell.notify_connection import FAILURES, NotifyConnection
from holdfast.adapters.bell.sender import CHANNEL, Sender
from holdfast.ports.bell import RUNS

log = logging.getLogger(__name__)

# Where Procrastinate announces a new job of the queue ``runs``.
JOBS_CHANNEL: Final = "procrastinate_queue_v1#runs"
# The pauses between attempts to connect: they double from the first to the longest.
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 1.0


class NotificationsMissing(Exception):
    """A notification did not come back from the database in time."""


class Listener:
    def __init__(
        self,
        connection: NotifyConnection,
        sender: Sender,
        *,
        sender_id: str,
        check_seconds: float,
        answer_seconds: float,
        on_connect: Callable[[], None],
        on_rings: Callable[[Sequence[str]], None],
    ) -> None:
        """``on_connect`` and ``on_rings`` are called in the listener's thread."""
        self.is_connected = False
        self._connection = connection
        self._sender = sender
        self._sender_id = sender_id
        self._check_seconds = check_seconds
        self._answer_seconds = answer_seconds
        self._on_connect = on_connect
        self._on_rings = on_rings
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._has_logged_outage = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bell-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End within a bounded time. A thread that is just connecting ends when that is decided."""
        self._stopping.set()
        self._connection.end()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._listen_until_failure()
                self._stopping.wait(self._pause_seconds)
                self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        finally:
            self.is_connected = False
            self._connection.drop()

    def _listen_until_failure(self) -> None:
        try:
            self._listen()
        except (*FAILURES, NotificationsMissing) as error:
            self.is_connected = False
            self._connection.drop()
            # It may be the sender's connection that hangs.
            self._sender.interrupt()
            if not (self._has_logged_outage or self._stopping.is_set()):
                self._has_logged_outage = True
                log.warning("bell.disconnected", extra={"why": describe_error(error)})

    def _listen(self) -> None:
        connection = self._connection.connect()
        with self._connection.limit(self._answer_seconds):
            for channel in (CHANNEL, JOBS_CHANNEL):
                connection.execute(f'LISTEN "{channel}"'.encode())
        # Not taken for an echo: a transaction pooler passes on what comes together with an answer, and nothing later.
        list(connection.notifies(timeout=0))
        while True:
            self._sender.send_echo()
            if not self._receive(connection, self._answer_seconds, until_echo=True):
                raise NotificationsMissing
            if not self.is_connected:
                self._mark_connected()
            self._receive(connection, self._check_seconds)

    def _mark_connected(self) -> None:
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        # First the rings: who sees that the bell is connected need not look for what was missed before.
        self._on_connect()
        self.is_connected = True
        if self._has_logged_outage:
            self._has_logged_outage = False
            log.warning("bell.connected")

    def _receive(
        self, connection: psycopg.Connection[Any], seconds: float, *, until_echo: bool = False
    ) -> bool:
        """Deliver what arrives in so many seconds, or until an echo has arrived; return whether that is why it ended."""
        give_up_at = time.monotonic() + seconds
        while (left := give_up_at - time.monotonic()) > 0:
            # Not left early: what has arrived in the same packet would be lost.
            notifications = list(connection.notifies(timeout=left, stop_after=1))
            echoes = [self._deliver(item) for item in notifications]
            if until_echo and any(echoes):
                return True
        return False

    def _deliver(self, notification: psycopg.Notify) -> bool:
        """Return whether this server sent it; then there is nothing to do."""
        if notification.channel == JOBS_CHANNEL:
            self._on_rings([RUNS])
            return False
        sender_id, *topics = notification.payload.split("\n")
        if sender_id == self._sender_id:
            return True
        if topics:
            self._on_rings(topics)
        return False


def describe_error(error: Exception) -> str:
    """In one line, for people."""
    text = str(error).strip() or str(error.__doc__)
    return " ".join(text.split())
