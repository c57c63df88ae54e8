"""Keeps the index of words complete and small: indexes messages that a version without the index has stored, and removes the
words of deleted texts. In batches so small that no turn waits for one, with a pause after each."""

import asyncio
import logging
from typing import Final

from holdfast.core.index_check import IndexPass
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How often it is checked whether there is something to do.
POLL_SECONDS: Final = 60.0
# After each batch: others write meanwhile.
PAUSE_SECONDS: Final = 0.02
REMOVED_AT_ONCE: Final = 100
MESSAGES_AT_ONCE: Final = 200


class SearchUpkeep:
    """``version``: of this server. Servers of others may not index the messages that they store."""

    def __init__(self, services: Services, version: str) -> None:
        self._services = services
        self._version = version

    async def run(self) -> None:
        while True:
            try:
                await self.catch_up()
            except BackendError:
                log.exception("store.unreachable", extra={"while": "keeping the index of words"})
            await asyncio.sleep(POLL_SECONDS)

    async def catch_up(self) -> None:
        """Do all that there is to do now."""
        await self._index_missing()
        await self._remove_deleted()

    async def _index_missing(self) -> None:
        if not await self._services.store.read(self._is_due):
            return
        count = 0
        is_over = False
        while not is_over:
            # To its end, even if another server becomes the leader meanwhile: its error must be heard.
            added, is_over = await finish(self._services.store.write(self._index_batch))
            count += added
            await asyncio.sleep(PAUSE_SECONDS)
        if count:
            log.info("index.completed", extra={"messages": count})

    async def _remove_deleted(self) -> None:
        count = 0
        while await self._services.store.read(lambda tx: tx.search_index.has_deleted()):
            count += await finish(
                self._services.store.write(
                    lambda tx: tx.search_index.remove_deleted(REMOVED_AT_ONCE)
                )
            )
            await asyncio.sleep(PAUSE_SECONDS)
        if count:
            log.info("index.cleaned", extra={"texts": count})

    def _is_due(self, tx: Transaction) -> bool:
        top, is_final = self._look_around(tx)
        return tx.search_index.load_check().is_due(top, is_final=is_final)

    def _index_batch(self, tx: Transaction) -> tuple[int, bool]:
        """Index some of the messages that are missing; return how many, and whether the pass is over."""
        check = tx.search_index.lock_check()
        if check.current is None:
            top, is_final = self._look_around(tx)
            check = check.begin(top, is_final=is_final)
        count, below = _index_some(tx, check.current)
        tx.search_index.save_check(check.advance(below))
        return count, below is None

    def _look_around(self, tx: Transaction) -> tuple[int, bool]:
        """The last message, and whether it is certain that no server without the index can store one before it."""
        # In this order: a server that is not listed yet stores its first message after the last one of now. One that has
        # died is listed for so long that all it has sent to the database is stored.
        top = tx.search_index.last_message()
        return top, all(server.version == self._version for server in tx.servers.list())


def _index_some(tx: Transaction, current: IndexPass | None) -> tuple[int, int | None]:
    if current is None:
        return 0, None
    return tx.search_index.index_missing_messages(
        bottom=current.bottom, below=current.below, limit=MESSAGES_AT_ONCE
    )
