"""The database of a scenario, which survives its processes, and the store of one process."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import text
from tests.simulation.chance import Chance

from holdfast.adapters.store import tables
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ports.store import Transaction

T = TypeVar("T")


class Disk:
    """A real SQLite store, used without its threads."""

    def __init__(self, folder: Path) -> None:
        # Without a time limit, so that the same seed always plays the same scenario, however busy the machine is.
        self._store = SqliteStore._open(
            folder / "holdfast.db", FernetCipher("a key for tests"), write_seconds=math.inf
        )

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self._store._write_once(work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._store._read_once(work)

    def wipe(self) -> None:
        """Empty all tables for the next scenario."""
        with self._store._writer.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(table.delete())
            if connection.execute(
                text("SELECT 1 FROM sqlite_master WHERE name='sqlite_sequence'")
            ).first():
                connection.execute(text("DELETE FROM sqlite_sequence"))

    def close(self) -> None:
        self._store._close()


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Transaction], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: Exception | None = None


class SteppedStore:
    """The Store of one process. A transaction takes its chance: how long until it begins, how long until its
    caller hears of it. In order, one after the other, like SQLite's single writer; or as they come, like the
    connections of a pool."""

    def __init__(
        self,
        disk: Disk,
        chance: Chance,
        committed: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._random = chance.random
        self._pause = chance.pause
        self._find_fault = chance.find_fault
        self._loses_answer = chance.loses_answer
        self._committed = committed
        self._in_order = chance.in_order
        self._waiting: list[_Job[Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.dead = False

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._raise_if_dead()
        job = _Job(work)
        self._waiting.append(job)
        task = asyncio.create_task(self._run_job(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Whoever goes away leaves no doubt behind: what was asked for is done.
        return await asyncio.shield(task)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self._raise_if_dead()
        await self._pause()
        self._raise_if_dead()
        if (fault := self._find_fault(writes=False)) is not None:
            raise fault
        seen = self._disk.read(work)
        await self._pause()
        return seen

    async def close(self) -> None:
        """Finish the transactions that were accepted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def die(self) -> None:
        """Commit some of the pending transactions and drop the others, as a crash does."""
        self.dead = True
        for job in list(self._waiting):
            if self._random.random() < 0.5:
                self._execute(job)
            elif self._in_order:
                break

    def _raise_if_dead(self) -> None:
        if self.dead:
            raise StoreUnavailable("This process is dead.")

    async def _run_job(self, job: _Job[T]) -> T:
        await self._pause()
        self._raise_if_dead()
        fault = self._find_fault(writes=True) if job in self._waiting else None
        if fault is not None:
            self._waiting.remove(job)
            raise fault
        while job in self._waiting:
            self._execute(self._waiting[0] if self._in_order else job)
        await self._pause()
        if job.error is not None:
            raise job.error
        if self._loses_answer():
            raise OutcomeUnknown("The connection was lost during the commit.")
        return job.result  # type: ignore[return-value] # there is a result where there is no error

    def _execute(self, job: _Job[Any]) -> None:
        self._waiting.remove(job)
        try:
            job.result = self._disk.write(job.work)
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            job.error = error
        else:
            self._committed()
