"""Writing down something of an effect while the effect goes on."""

import asyncio
import logging
from collections.abc import Callable

from holdfast.errors import BackendError
from holdfast.ports.house import House
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)


async def put_on_record(house: House, work: Callable[[Transaction], None], doing: str) -> None:
    """Keep what must not be lost in a crash. If the store cannot, it is written with the next checkpoint."""
    writing = asyncio.ensure_future(house.store.write(work))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        # It is written all the same; it must not be written after the checkpoint that ends the effect.
        await asyncio.wait([writing])
        raise
    except BackendError:
        log.exception("store.unreachable", extra={"while": doing})
