"""Whether the server can work: the store can be read, it can be written, and its disk has room.

A write is made every few seconds at most, however often somebody asks: these questions need no password.
"""

import asyncio
import math
from typing import Final

from holdfast.errors import DiskFull, StoreUnavailable
from holdfast.ports.store import Store, Transaction

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
        has_disk_space = await store.write(_probe)
    except StoreUnavailable as error:
        return error
    return None if has_disk_space else DiskFull("The disk of the store is full.")


def _probe(tx: Transaction) -> bool:
    tx.write_probe()
    return tx.has_disk_space()
