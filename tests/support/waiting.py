"""Waiting for what sets no event of ours: another process. The one place where tests may poll."""

import asyncio
from collections.abc import Callable

WAIT_SECONDS = 20
_POLL_SECONDS = 0.005


async def eventually(fact: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 - see above
            await asyncio.sleep(_POLL_SECONDS)
