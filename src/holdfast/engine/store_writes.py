"""Writes of the engine that must not be lost: to an outage of the store, or to the end of the task that made them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, TypeVar

from holdfast.core.runs import Run
from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")

# How long to wait before an unreachable store is tried again: at first, and at most. Each wait is twice the last one.
FIRST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 5.0


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await the work to its end even if this task is cancelled. The caller gets its outcome, and the cancellation at
    its next await: what is stored by then must be published, and an error must be heard by somebody."""
    task = asyncio.create_task(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    current = asyncio.current_task()
    if is_cancelled and current is not None:
        # Counted once: a time limit recognises its own cancellation by the number of requests.
        current.uncancel()
        current.cancel()
    return task.result()


def with_fence(run: Run, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """The work of a transaction that writes for the run, but not the run itself: RunFenced if it is another server's."""

    @wraps(work)
    def work_of_claim(tx: Transaction) -> T:
        tx.runs.lock(run)
        return work(tx)

    return work_of_claim


async def write_until_stored(
    services: Services, write: Callable[[], Coroutine[Any, Any, T]], activity: str
) -> T:
    """Write, again and again while the store cannot be reached. What is to be written is only in memory, so giving up
    would lose it. The write itself must find out whether an earlier attempt was committed after all."""
    delay = FIRST_RETRY_SECONDS
    while True:
        try:
            return await finish(write())
        except BackendError:
            log.exception("store.unreachable", extra={"while": activity})
        await services.clock.sleep(delay)
        delay = min(2 * delay, LONGEST_RETRY_SECONDS)


async def save_now(
    services: Services, run: Run, work: Callable[[Transaction], None], activity: str
) -> None:
    """Store a part of an effect of the run while it is running, which a crash must not lose. If the store is out of
    reach, the next checkpoint stores it."""
    try:
        await finish(services.store.write(with_fence(run, work)))
    except BackendError:
        log.exception("store.unreachable", extra={"while": activity})
