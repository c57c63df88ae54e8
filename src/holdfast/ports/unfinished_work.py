"""Work that is lost if it is broken off: it goes on when the request that began it is cancelled, and a server that stops
waits for it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class UnfinishedWork:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work to its end. Who is cancelled here only does not hear of its result."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def wait(self, seconds: float) -> None:
        """Wait until all of it is done, but no longer than this."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            log.warning("stop.work_unfinished", extra={"count": len(self._tasks)})

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Nobody may be there any more who would ask for it.
            task.exception()
