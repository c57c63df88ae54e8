"""A lease that a test gives and takes."""

import asyncio

from holdfast.core.servers import Claimant, ServerLoad


class GivenLease:
    """Valid while there is a claimant."""

    def __init__(self, claimant: Claimant | None) -> None:
        self.claimant = claimant
        self.is_leader = False
        self.is_exclusive = False
        self.has_peers = True
        self.load = ServerLoad()

    @property
    def server_id(self) -> str | None:
        return None if self.claimant is None else self.claimant.server_id

    @property
    def is_valid(self) -> bool:
        return self.claimant is not None

    async def wait_until_lost(self) -> None:
        await asyncio.Event().wait()

    async def register(self) -> None: ...
