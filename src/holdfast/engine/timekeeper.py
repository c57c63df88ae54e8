"""Sees to it that no held call waits longer than it was to wait.

Deadlines are in the store, so a restart needs nothing but a look at it; of several processes that look at one store
at the same time one gets to answer, as with persons.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.core.approvals import Overdue
from holdfast.errors import BackendError, CallerError, Conflict
from holdfast.ports.bell import DEADLINES
from holdfast.ports.house import House

log = logging.getLogger(__name__)

# A deadline that rings no bell here (another process set it, and died), or that could not be kept, is seen after
# this long.
LOOK_SECONDS = 5.0

Expire = Callable[[House, Overdue], Awaitable[object]]


class Timekeeper:
    """``expire`` is the use case that answers in place of whoever did not."""

    def __init__(self, house: House, expire: Expire) -> None:
        self._house = house
        self._expire = expire

    async def run(self) -> None:
        while True:
            try:
                seconds = await self._look()
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for deadlines"})
                seconds = LOOK_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._house.bell.wait(DEADLINES)
            except TimeoutError:
                pass

    async def _look(self) -> float:
        """Keep the deadlines that have come; how long to wait for the next."""
        now = self._house.clock.now()
        overdue, next_at = await self._house.store.read(
            lambda tx: (tx.calls.overdue(now), tx.calls.next_deadline(now))
        )
        for request in overdue:
            await self._keep(request)
        if next_at is None:
            return LOOK_SECONDS
        seconds = (next_at - self._house.clock.now()).total_seconds()
        return min(max(seconds, 0.0), LOOK_SECONDS)

    async def _keep(self, request: Overdue) -> None:
        """One that cannot be kept must not stand in the way of the others."""
        known = {"request_id": request.request_id}
        try:
            await self._expire(self._house, request)
        except CallerError as error:
            # Somebody was faster; anything else is for the operator to see.
            level = logging.INFO if isinstance(error, Conflict) else logging.WARNING
            log.log(level, "approval.not_expired", extra=known | {"why": str(error)})
        except BackendError:
            raise
        except Exception:
            log.exception("approval.not_expired", extra=known)
        else:
            log.info("approval.expired", extra=known)
