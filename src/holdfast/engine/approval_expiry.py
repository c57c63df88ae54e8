"""Sees to it that no held call waits longer than it was to wait.

Deadlines are in the store, so a restart needs nothing but a look at it; of several processes that look at one store
at the same time one gets to answer, as with persons.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.core.approvals import OverdueRequest
from holdfast.errors import BackendError, CallerError, Conflict
from holdfast.ports.bell import DEADLINES
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# A deadline that rings no bell here (another process set it, and died), or that could not be kept, is seen after
# this long.
POLL_SECONDS = 5.0

Expire = Callable[[Services, OverdueRequest], Awaitable[object]]


class ApprovalExpiry:
    """``expire`` is the use case that answers in place of whoever did not."""

    def __init__(self, services: Services, expire: Expire) -> None:
        self._services = services
        self._expire = expire

    async def run(self) -> None:
        while True:
            try:
                seconds = await self._expire_overdue()
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for deadlines"})
                seconds = POLL_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._services.bell.wait(DEADLINES)
            except TimeoutError:
                pass

    async def _expire_overdue(self) -> float:
        """Keep the deadlines that have come; how long to wait for the next."""
        now = self._services.clock.now()
        overdue, next_at = await self._services.store.read(
            lambda tx: (tx.calls.list_overdue(now), tx.calls.next_deadline(now))
        )
        for request in overdue:
            await self._expire_one(request)
        if next_at is None:
            return POLL_SECONDS
        seconds = (next_at - self._services.clock.now()).total_seconds()
        return min(max(seconds, 0.0), POLL_SECONDS)

    async def _expire_one(self, request: OverdueRequest) -> None:
        """One that cannot be kept must not stand in the way of the others."""
        known = {"request_id": request.request_id}
        try:
            await self._expire(self._services, request)
        except CallerError as error:
            # Somebody was faster; anything else is for the operator to see.
            level = logging.INFO if isinstance(error, Conflict) else logging.WARNING
            log.log(level, "approval.expiry_failed", extra=known | {"why": str(error)})
        except BackendError:
            raise
        except Exception:
            log.exception("approval.expiry_failed", extra=known)
        else:
            log.info("approval.expired", extra=known)
