"""A bell for several servers on one PostgreSQL: it wakes the tasks of this server itself, those of others by NOTIFY."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from holdfast.adapters.bell.listener import Listener
from holdfast.adapters.bell.local import LocalBell
from holdfast.adapters.bell.notify_connection import NotifyConnection
from holdfast.adapters.bell.sender import Sender

# How often it is checked that notifications arrive.
CHECK_SECONDS: Final = 10.0
# How long a notification may take: far longer than it normally does, because the check of a busy server may be late.
ANSWER_SECONDS: Final = 5.0
_SENDER_ID_BYTES: Final = 8


class PostgresBell(LocalBell):
    """``has_peers`` says whether another server is alive; if not, nothing is sent."""

    def __init__(
        self,
        url: str,
        *,
        has_peers: Callable[[], bool],
        listen_url: str | None = None,
        check_seconds: float = CHECK_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """SettingInvalid if a URL cannot be read. Nothing is connected before ``open``."""
        super().__init__()
        self._has_peers = has_peers
        sender_id = secrets.token_hex(_SENDER_ID_BYTES)
        self._sender = Sender(NotifyConnection(url, name="holdfast-notify"), sender_id)
        self._listener = Listener(
            NotifyConnection(listen_url or url, name="holdfast-listen"),
            self._sender,
            sender_id=sender_id,
            check_seconds=check_seconds,
            answer_seconds=answer_seconds,
            on_connect=lambda: self._call_soon(self._ring_everything),
            on_rings=lambda topics: self._call_soon(partial(self._ring_here, topics)),
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Start to connect. Does not wait for the database: ``is_connected`` tells."""
        self._loop = asyncio.get_running_loop()
        self._sender.start()
        self._listener.start()

    async def aclose(self) -> None:
        """Send the last rings and end both threads, within a few seconds even if the database hangs."""
        await asyncio.to_thread(self._stop)

    @property
    def is_connected(self) -> bool:
        return self._listener.is_connected

    def ring(self, topic: str, *, here_only: bool = False) -> None:
        super().ring(topic)
        if not here_only and self._has_peers():
            self._sender.send(topic)

    def _stop(self) -> None:
        self._sender.stop()
        self._listener.stop()

    def _ring_here(self, topics: Sequence[str]) -> None:
        for topic in topics:
            super().ring(topic)

    def _ring_everything(self) -> None:
        """Rings may have been missed."""
        for topic in (*self._events, *self._watches):
            super().ring(topic)

    def _call_soon(self, function: Callable[[], None]) -> None:
        # The loop may have ended before a thread that was just connecting.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)
