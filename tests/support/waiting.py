"""Waiting for what sets no event of ours: another process. The one place where tests may poll."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 20
_POLL_SECONDS = 0.005
# Between two attempts at something that costs the other process work.
_RETRY_SECONDS = 0.05

T = TypeVar("T")


async def eventually(fact: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 - see above
            await asyncio.sleep(_POLL_SECONDS)


def try_until_done(attempt: Callable[[], T | None], *, seconds: float) -> T:
    """Make attempts in this thread until one returns something."""
    give_up_at = time.monotonic() + seconds
    while (done := attempt()) is None:
        assert time.monotonic() < give_up_at, f"not done after {seconds} s"
        time.sleep(_RETRY_SECONDS)
    return done
