"""A store that fails for the requests of a test, while the engine's own tasks keep a store that works."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ports.store import Store, Transaction

T = TypeVar("T")

_has_faults: ContextVar[bool] = ContextVar("has_faults", default=False)


@contextmanager
def with_faults() -> Iterator[None]:
    """Faults reach what this task does, and the tasks that it starts: with ASGITransport that is a request."""
    token = _has_faults.set(True)
    try:
        yield
    finally:
        _has_faults.reset(token)


class UnreliableStore:
    """Each number says how many operations fail; after them the store works again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Operations after the next commit.
        self.failures_after_commit = 0
        # Commits whose answer is lost: those that happen, and those that do not.
        self.lost_answers = 0
        self.lost_commits = 0
        # The answer to the commit after the next.
        self.loses_second_answer = False
        # All operations.
        self.failures = 0

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if not _has_faults.get():
            return await self._store.write(work)
        self._fail_if_due()
        if self.lost_commits:
            self.lost_commits -= 1
            raise OutcomeUnknown("The connection was lost.")
        result = await self._store.write(work)
        self.failures, self.failures_after_commit = self.failures_after_commit, 0
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("The connection was lost.")
        self.lost_answers, self.loses_second_answer = int(self.loses_second_answer), False
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        if _has_faults.get():
            self._fail_if_due()
        return await self._store.read(work)

    async def close(self) -> None: ...

    def _fail_if_due(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("The database does not answer.")
