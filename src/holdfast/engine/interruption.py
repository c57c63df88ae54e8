"""Stopping one effect at once, from outside, without ending the task that carries the run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.endings import EarlyEnd
from holdfast.engine.progress import EffectProgress


class Interrupted(Exception):
    """The effect was stopped. The run ends as ``end`` says; None: it is to be cancelled, as is on record."""

    def __init__(self, end: EarlyEnd | None = None) -> None:
        self.end = end
        super().__init__()


class Interruption:
    """``strike`` ends the block that is open now, or the next one that opens."""

    def __init__(self) -> None:
        self._struck = False
        self._end: EarlyEnd | None = None
        self._open: asyncio.Timeout | None = None
        # How far the effect in the open block has come; None while there is nothing to stop.
        self.effect: EffectProgress | None = None

    @property
    def is_struck(self) -> bool:
        return self._struck

    def strike(self, end: EarlyEnd | None = None) -> None:
        if self._struck:
            # A block that is winding down cannot be stopped a second time.
            return
        self._struck = True
        self._end = end
        if self._open is not None:
            self._open.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def stoppable(self, effect: EffectProgress) -> AsyncIterator[None]:
        """What happens in here is cancelled by a strike and ends as Interrupted."""
        if self._struck:
            raise Interrupted(self._end)
        self.effect = effect
        try:
            # A time-out without a time: the one way to cancel a block and keep its task.
            async with asyncio.timeout(None) as self._open:
                yield
        except TimeoutError:
            if self._struck:
                raise Interrupted(self._end) from None
            raise
        finally:
            self._open = self.effect = None
