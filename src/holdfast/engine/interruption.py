"""Stopping one effect at once, from outside, without ending the task of the run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.turn import EndTurn
from holdfast.engine.progress import EffectProgress


class Interrupted(Exception):
    """The effect was stopped. ``end`` says how the run ends; None: a cancel is recorded in the store."""

    def __init__(self, end: EndTurn | None = None) -> None:
        self.end = end
        super().__init__()


class Interruption:
    """``trigger`` ends the scope that is open now, or the next one that opens."""

    def __init__(self) -> None:
        self._triggered = False
        self._end: EndTurn | None = None
        self._timeout: asyncio.Timeout | None = None
        # The progress of the effect in the open scope; None while there is nothing to stop.
        self.effect: EffectProgress | None = None

    @property
    def is_triggered(self) -> bool:
        return self._triggered

    def trigger(self, end: EndTurn | None = None) -> None:
        if self._triggered:
            # A scope that is being cancelled cannot be cancelled a second time.
            return
        self._triggered = True
        self._end = end
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def scope(self, effect: EffectProgress) -> AsyncIterator[None]:
        """A trigger cancels what runs in this scope, which then raises Interrupted."""
        if self._triggered:
            raise Interrupted(self._end)
        self.effect = effect
        try:
            # A timeout without a time: the only way to cancel a block without cancelling its task.
            async with asyncio.timeout(None) as self._timeout:
                yield
        except TimeoutError:
            if self._triggered:
                raise Interrupted(self._end) from None
            raise
        finally:
            self._timeout = self.effect = None
