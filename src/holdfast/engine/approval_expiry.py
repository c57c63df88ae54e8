"""Answers held calls whose deadline has passed.

Deadlines are in the store, so nothing is lost by a restart. If several processes answer the same request, the first
one succeeds, as it is with persons.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.core.approvals import OverdueRequest
from holdfast.errors import BackendError, CallerError, Conflict
from holdfast.ports.bell import DEADLINES
from holdfast.ports.services import Services

log = logging.getLogger(__name__)

# How often the store is checked for deadlines that another process has set, and for those that could not be expired.
POLL_SECONDS = 5.0

Expire = Callable[[Services, OverdueRequest], Awaitable[object]]


class ApprovalExpiry:
    """``expire`` is the use case that answers the overdue calls of a request."""

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
        """Expire the requests that are overdue; returns how long to wait for the next deadline."""
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
        """Expire one request. A request that cannot be expired must not affect the others."""
        fields = {"request_id": request.request_id}
        try:
            await self._expire(self._services, request)
        except CallerError as error:
            # A Conflict means that it was decided meanwhile; anything else is unexpected.
            level = logging.INFO if isinstance(error, Conflict) else logging.WARNING
            log.log(level, "approval.expiry_failed", extra=fields | {"why": str(error)})
        except BackendError:
            raise
        except Exception:
            log.exception("approval.expiry_failed", extra=fields)
        else:
            log.info("approval.expired", extra=fields)
