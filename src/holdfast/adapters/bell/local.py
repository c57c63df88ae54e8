"""A bell inside one process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.ports.bell import CALLBACKS, CANCELS, DEADLINES, RUNS

# A ring of these is remembered for the next ``wait``, even if none has been called yet.
_REMEMBERED_TOPICS = (CANCELS, DEADLINES, CALLBACKS, RUNS)


class LocalWatch:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class LocalBell:
    def __init__(self) -> None:
        self._events = {topic: asyncio.Event() for topic in _REMEMBERED_TOPICS}
        self._watches: dict[str, set[LocalWatch]] = {}

    @property
    def is_connected(self) -> bool:
        """Always: there are no other servers."""
        return True

    def ring(self, topic: str, *, here_only: bool = False) -> None:  # noqa: ARG002 - there is only here
        if (event := self._events.get(topic)) is not None:
            event.set()
        for watch in self._watches.get(topic, ()):
            watch.ring()

    async def wait(self, topic: str) -> None:
        event = self._events.setdefault(topic, asyncio.Event())
        await event.wait()
        event.clear()

    @contextmanager
    def watch(self, topic: str) -> Iterator[LocalWatch]:
        watch = LocalWatch()
        watches = self._watches.setdefault(topic, set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)
            # The last one leaves nothing behind.
            if not watches:
                self._watches.pop(topic, None)

    async def aclose(self) -> None:
        """Nothing is open."""
