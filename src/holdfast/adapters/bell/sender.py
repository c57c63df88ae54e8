"""The thread that sends rings to other servers, by NOTIFY. Rings are hints, so those that cannot be sent are dropped."""

import threading
from collections.abc import Iterable
from typing import Final

from holdfast.adapters.bell.notify_connection import FAILURES, NotifyConnection

CHANNEL: Final = "holdfast"
# The first ring is sent at once. Then the rings of so long are sent together: many runs that ring at once cost few
# notifications, and a reader does not notice the delay.
BATCH_SECONDS: Final = 0.01
# How long to wait after a failure, so that a database that is down is not asked a hundred times a second.
RETRY_SECONDS: Final = 0.5
# PostgreSQL refuses payloads of 8000 bytes and more.
MAX_PAYLOAD_BYTES: Final = 7_999
# How long the last rings may take when the server stops.
_FLUSH_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 1.0
# One transaction for all payloads.
_NOTIFY: Final = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"


class Sender:
    """A payload is the id of its sender and then topics, a line each. Without topics it only checks the connection."""

    def __init__(self, connection: NotifyConnection, sender_id: str) -> None:
        self._connection = connection
        self._sender_id = sender_id
        self._lock = threading.Lock()
        self._topics: dict[str, None] = {}
        self._wants_echo = False
        # Set if there is something to send, or if the thread is to end.
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bell-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, topic: str) -> None:
        """Send the topic soon. Never waits for the database."""
        if self._stopping.is_set():
            return
        with self._lock:
            self._topics[topic] = None
        self._wake.set()

    def send_echo(self) -> None:
        """Send a notification that only this server takes notice of: it shows that notifications arrive."""
        self._wants_echo = True
        self._wake.set()

    def interrupt(self) -> None:
        """Break the connection off, because it may hang. What is being sent is tried again."""
        self._connection.interrupt()

    def stop(self) -> None:
        """Send what is left, and end within a bounded time."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is None:
            return
        self._thread.join(_FLUSH_SECONDS)
        self._connection.end()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait()
            self._wake.clear()
            is_last = self._stopping.is_set()
            payloads = self._take_payloads()
            was_sent = not payloads or self._notify(payloads)
            self._stopping.wait(BATCH_SECONDS if was_sent else RETRY_SECONDS)
        self._connection.drop()

    def _take_payloads(self) -> list[str]:
        with self._lock:
            topics, self._topics = self._topics, {}
        wants_echo, self._wants_echo = self._wants_echo, False
        payloads = pack_topics(self._sender_id, topics)
        # Any notification of ours serves as an echo.
        return payloads or ([self._sender_id] if wants_echo else [])

    def _notify(self, payloads: list[str]) -> bool:
        """Whether they were sent. That they were not is not logged: the echo does not come, and that is."""
        # Twice: the connection may have been cut since it was used last.
        for _ in range(2):
            try:
                self._connection.connect().execute(_NOTIFY, (CHANNEL, payloads))
            except FAILURES:
                self._connection.drop()
            else:
                return True
        return False


def pack_topics(sender_id: str, topics: Iterable[str]) -> list[str]:
    """As few payloads as possible."""
    payloads: list[str] = []
    size = MAX_PAYLOAD_BYTES
    for topic in topics:
        added = len(topic.encode()) + 1
        if size + added > MAX_PAYLOAD_BYTES:
            payloads.append(sender_id)
            size = len(sender_id)
        payloads[-1] += f"\n{topic}"
        size += added
    return payloads
