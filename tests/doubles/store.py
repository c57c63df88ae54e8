"""A store whose process dies at a chosen write, and a store that is out of reach for a while."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StoreUnavailable
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


class OutageStore:
    """Fails every write while ``is_out``. The write with the number ``unknown_at``, counted from 0, is committed and
    then reported as failed, as by a connection that breaks during the commit."""

    def __init__(self, store: Store, *, unknown_at: int | None = None) -> None:
        self._store = store
        self._unknown_at = unknown_at
        self._writes = 0
        self.is_out = False
        self.failed = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if self.is_out:
            self._fail()
        number, self._writes = self._writes, self._writes + 1
        result = await self._store.write(work)
        if number == self._unknown_at:
            self._fail()
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...

    def _fail(self) -> None:
        self.failed.set()
        raise StoreUnavailable("TEST: the store is out of reach")
