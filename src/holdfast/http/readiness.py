"""Whether the server can work: the store can be read, and it can be written.

A full disk is noticed only by a write. One is made every few seconds at most, however often somebody asks: these
questions need no password.
"""

import asyncio
import math
from typing import Final

from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Store

WRITE_CHECK_SECONDS: Final = 2.0


class Readiness:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._written_at = -math.inf
        self._fault: StoreUnavailable | None = None

    async def find_fault(self, store: Store) -> StoreUnavailable | None:
        """What keeps the server from working; None if nothing does."""
        try:
            await store.read(lambda _tx: None)
        except StoreUnavailable as error:
            return error
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._written_at >= WRITE_CHECK_SECONDS:
                self._fault = await _find_write_fault(store)
                self._written_at = now
        return self._fault


async def _find_write_fault(store: Store) -> StoreUnavailable | None:
    try:
        await store.write(lambda tx: tx.write_probe())
    except StoreUnavailable as error:
        return error
    return None
