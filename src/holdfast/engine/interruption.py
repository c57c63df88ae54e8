"""Stopping one effect at once, from outside, without ending the task that carries the run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Interrupted(Exception):
    """The effect was stopped because the run is to be cancelled."""


class Interruption:
    """``strike`` ends the block that is open now, or the next one that opens."""

    def __init__(self) -> None:
        self._struck = False
        self._open: asyncio.Timeout | None = None

    def strike(self) -> None:
        if self._struck:
            # A block that is winding down cannot be stopped a second time.
            return
        self._struck = True
        if self._open is not None:
            self._open.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def stoppable(self) -> AsyncIterator[None]:
        """What happens in here is cancelled by a strike and ends as Interrupted."""
        if self._struck:
            raise Interrupted
        try:
            # A time-out without a time: the one way to cancel a block and keep its task.
            async with asyncio.timeout(None) as self._open:
                yield
        except TimeoutError:
            if self._struck:
                raise Interrupted from None
            raise
        finally:
            self._open = None
