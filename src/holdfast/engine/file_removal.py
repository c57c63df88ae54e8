"""Removes the rows of deleted folders and files in small transactions, and the bytes of uploads that broke off."""

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from typing import Final

from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError
from holdfast.ports.bell import REMOVALS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# Rows that one transaction removes: some milliseconds.
ROWS_AT_ONCE: Final = 250
# The bytes of an upload are stored after all of it has come, within seconds. After this long, nobody does so any more.
BROKEN_UPLOAD_SECONDS: Final = 900.0
POLL_SECONDS: Final = 30.0


class FileRemoval:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self) -> None:
        while True:
            try:
                await self.remove_all()
            except BackendError:
                log.exception("store.unreachable", extra={"while": "removing deleted files"})
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._services.bell.wait(REMOVALS)

    async def remove_all(self) -> None:
        """Remove what is to be removed now."""
        before = self._services.clock.now() - timedelta(seconds=BROKEN_UPLOAD_SECONDS)

        def delete_broken_uploads(tx: Transaction) -> int:
            broken = tx.contents.list_broken_uploads(before, ROWS_AT_ONCE)
            for content in broken:
                tx.contents.delete(content.id)
            return len(broken)

        if count := await finish(self._services.store.write(delete_broken_uploads)):
            log.warning("uploads.broken_off", extra={"count": count})
        while await finish(
            self._services.store.write(lambda tx: tx.removals.remove_some(ROWS_AT_ONCE))
        ):
            pass
