"""Writing down something of an effect while the effect goes on."""

import asyncio
import logging
from collections.abc import Callable

from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)


async def save_now(services: Services, work: Callable[[Transaction], None], activity: str) -> None:
    """Keep what must not be lost in a crash. If the store cannot, it is written with the next checkpoint."""
    writing = asyncio.ensure_future(services.store.write(work))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        # It is written all the same; it must not be written after the checkpoint that ends the effect.
        await asyncio.wait([writing])
        raise
    except BackendError:
        log.exception("store.unreachable", extra={"while": activity})
