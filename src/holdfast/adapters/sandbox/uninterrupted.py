"""Work that is finished whoever gives up waiting for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work whatever comes, then pass on the cancellation that came meanwhile."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
