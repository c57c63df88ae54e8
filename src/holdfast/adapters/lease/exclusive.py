"""The lease of a server whose database no other server can use: SQLite, whose file is locked."""

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from holdfast.core.servers import Claimant, Server, ServerLoad
from holdfast.ports.store import Store, Transaction

log = logging.getLogger(__name__)


class ExclusiveLease:
    def __init__(
        self, store: Store, server: Server, *, read_load: Callable[[], ServerLoad] = ServerLoad
    ) -> None:
        self._store = store
        self._server = server
        self._read_load = read_load
        self._claimant: Claimant | None = None

    @property
    def claimant(self) -> Claimant | None:
        return self._claimant

    @property
    def server_id(self) -> str | None:
        return None if self._claimant is None else self._claimant.server_id

    @property
    def load(self) -> ServerLoad:
        return self._read_load()

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def is_exclusive(self) -> bool:
        return True

    @property
    def has_peers(self) -> bool:
        return False

    async def wait_until_lost(self) -> NoReturn:
        while True:
            await asyncio.Event().wait()

    async def register(self) -> None:
        """Everything that another server has left unfinished is released: it is dead, since this one has the lock."""
        count = await self._store.write(self._replace_all)
        self._claimant = Claimant(self._server.id)
        if count:
            log.info("runs.released", extra={"count": count})

    async def aclose(self) -> None:
        """Nothing is open: the lock belongs to the store."""

    def _replace_all(self, tx: Transaction) -> int:
        for server in tx.servers.list():
            tx.servers.expire(server.id)
        tx.servers.delete_dead(tx.servers.now())
        tx.servers.register(self._server, None)
        return tx.queue.release_expired()
