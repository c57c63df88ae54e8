"""Storing a part of an effect while the effect is still running."""

import asyncio
import logging
from collections.abc import Callable

from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)


async def save_now(services: Services, work: Callable[[Transaction], None], activity: str) -> None:
    """Store what a crash must not lose. If the store is out of reach, the next checkpoint stores it."""
    writing = asyncio.ensure_future(services.store.write(work))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        # The write goes on. It must be over before the checkpoint that ends the effect begins.
        await asyncio.wait([writing])
        raise
    except BackendError:
        log.exception("store.unreachable", extra={"while": activity})
