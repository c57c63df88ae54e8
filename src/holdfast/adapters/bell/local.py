"""A bell inside one process."""

import asyncio
from collections import defaultdict


class LocalBell:
    def __init__(self) -> None:
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def ring(self, topic: str) -> None:
        self._events[topic].set()

    async def wait(self, topic: str) -> None:
        event = self._events[topic]
        await event.wait()
        event.clear()
