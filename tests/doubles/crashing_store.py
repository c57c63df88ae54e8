"""A store that fails at one operation, whichever the test chooses: to try a crash at each point of some work."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.ports.store import Store, Transaction

T = TypeVar("T")


class ServerDied(BaseException):
    """The process ended here. Nothing of it catches this."""


class CrashingStore:
    """Raises ``error`` at the operation with the number ``at``, counted from 1: before it, or after it was committed."""

    def __init__(self, store: Store, error: BaseException, at: int, *, is_committed: bool) -> None:
        self._store = store
        self._error = error
        self._at = at
        self._is_committed = is_committed
        self.operations = 0

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self.operations += 1
        if self.operations != self._at:
            return await self._store.write(work)
        if self._is_committed:
            await self._store.write(work)
        raise self._error

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self.operations += 1
        if self.operations == self._at:
            raise self._error
        return await self._store.read(work)

    async def close(self) -> None: ...
