"""A store whose process dies at a chosen write."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.ports.store import Store, Transaction

T = TypeVar("T")


class ProcessDied(BaseException):
    """Ends the process under test: nothing that runs later belongs to it."""


class CrashingStore:
    """Raises ``ProcessDied`` at the n-th write: before it reaches the database, or after the commit."""

    def __init__(self, store: Store, at: int, *, after_commit: bool) -> None:
        self._store = store
        self._left = at
        self._after_commit = after_commit
        self.died = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._left -= 1
        if self._left < 0 and not self._after_commit:
            self.died.set()
            raise ProcessDied
        result = await self._store.write(work)
        if self._left < 0:
            self.died.set()
            raise ProcessDied
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...
