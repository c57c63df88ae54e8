"""The database of a scenario, which survives its processes, and the store of one process."""

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import text
from tests.simulation.chance import Chance
from tests.simulation.clock import LoopClock
from tests.simulation.hosts import CLAIM, Host

from holdfast.adapters.store import runs, tables
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.search_schema import INDEX_NAMES
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.runs import Run
from holdfast.core.servers import Claim
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ports.store import Transaction

T = TypeVar("T")

_SELECT_RUNS = PreparedStatement(runs._select_run)


def load_runs(tx: Transaction) -> list[Run]:
    """All runs. The store has no such method; after each commit it is needed once."""
    transaction: Any = tx
    rows = _SELECT_RUNS.fetch_all(transaction._connection, {})
    return [runs._from_row(row) for row in rows]


class Disk:
    """A real SQLite store, used without its threads. Its clock is that of the loop."""

    def __init__(self, folder: Path) -> None:
        self._clock = LoopClock()
        # Without a time limit, so that the same seed always plays the same scenario, however busy the machine is.
        self._store = SqliteStore._open(
            folder / "holdfast.db",
            FernetCipher("a key for tests"),
            write_seconds=math.inf,
            clock=self._now,
        )
        # Commits that are on their way while nobody waits for them any more.
        self._late_commits: list[Callable[[], None]] = []

    def write(self, work: Callable[[Transaction], T]) -> tuple[T, int]:
        """Commit the work; return its result, and how many rows it has changed."""

        def count_changes(tx: Transaction) -> tuple[T, int]:
            connection: Any = tx
            driver = connection._connection.connection.dbapi_connection
            before = driver.total_changes
            return work(tx), driver.total_changes - before

        return self._store._write_once(count_changes)

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._store._read_once(work)

    def commit_later(self, commit: Callable[[], None], seconds: float) -> None:
        """The commit lands after so many seconds, but before the next one: it holds its locks until then."""
        self._late_commits.append(commit)
        asyncio.get_running_loop().call_later(seconds, self.finish_commits, context=Context())

    def finish_commits(self) -> None:
        late, self._late_commits = self._late_commits, []
        for commit in late:
            commit()

    def _now(self) -> datetime:
        return self._clock.now()

    def wipe(self) -> None:
        """Empty all tables for the next scenario."""
        self._clock = LoopClock()
        self._late_commits.clear()
        with self._store._writer.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(table.delete())
            # Positions begin anew, so nothing may be left in the index.
            for name in (*INDEX_NAMES.values(), "index_removals"):
                connection.execute(text(f"DELETE FROM {name}"))
            if connection.execute(
                text("SELECT 1 FROM sqlite_master WHERE name='sqlite_sequence'")
            ).first():
                connection.execute(text("DELETE FROM sqlite_sequence"))

    def close(self) -> None:
        self._store._close()


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Transaction], T]) -> None:
        self.work = work
        # Of the run that asks for it, if it is one.
        self.claim = CLAIM.get()
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
        host: Host,
        committed: Callable[[Claim | None], None],
    ) -> None:
        self._disk = disk
        self._chance = chance
        self._random = chance.random
        self._pause = chance.pause
        self._host = host
        self._committed = committed
        self._in_order = chance.in_order
        self._waiting: list[_Job[Any]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        # How many transactions have failed here, or seemed to.
        self.faults = 0

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._raise_if_dead()
        # It may wake up with transactions that are long out of date.
        self._chance.may_pause(self._host, 0.01)
        job = _Job(work)
        self._waiting.append(job)
        # What the database has got goes on while the process is paused.
        is_sent = self._random.random() < 0.5
        task = asyncio.create_task(self._run_job(job), context=Context() if is_sent else None)
        self._tasks[task] = None
        task.add_done_callback(self._forget_task, context=Context())
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

    async def beat(self, work: Callable[[Transaction], T]) -> T:
        """Write what concerns only the server itself: it waits for no other transaction."""
        await self._pause()
        self._raise_if_dead()
        if (fault := self._find_fault(writes=True)) is not None:
            raise fault
        result, _ = self._disk.write(work)
        await self._pause()
        self._raise_if_cut_off()
        return result

    async def close(self) -> None:
        """Finish the transactions that were accepted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def die(self) -> None:
        """Commit some of the pending transactions and drop the others, as a crash does."""
        self._host.is_dead = True
        for job in list(self._waiting):
            if self._random.random() < 0.5 and not self._host.is_cut_off:
                self._execute(job)
            elif self._in_order:
                break
        for task in list(self._tasks):
            task.cancel()

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _raise_if_dead(self) -> None:
        if self._host.is_dead:
            raise StoreUnavailable("This process is dead.")

    def _raise_if_cut_off(self) -> None:
        if self._host.is_cut_off:
            self.faults += 1
            raise OutcomeUnknown("The connection was lost before the answer came.")

    def _find_fault(self, *, writes: bool) -> StoreUnavailable | None:
        fault = self._chance.find_fault(writes=writes)
        if fault is None and self._host.is_cut_off:
            fault = StoreUnavailable("This server is cut off.")
        self.faults += fault is not None
        return fault

    async def _run_job(self, job: _Job[T]) -> T:
        await self._pause()
        self._raise_if_dead()
        fault = self._find_fault(writes=True) if job in self._waiting else None
        if fault is not None:
            if self._host.is_cut_off and self._chance.happens(0.3):
                # Everything was sent; only the answer to the commit is missing.
                seconds = self._random.choice([0.1, 2.0, 15.0]) * self._random.random()
                self._waiting.remove(job)
                self._disk.commit_later(lambda: self._commit(job), seconds)
                self._raise_if_cut_off()
            self._waiting.remove(job)
            raise fault
        while job in self._waiting:
            self._execute(self._waiting[0] if self._in_order else job)
        await self._pause()
        if job.error is not None:
            raise job.error
        self._raise_if_cut_off()
        if self._chance.loses_answer():
            self.faults += 1
            raise OutcomeUnknown("The connection was lost during the commit.")
        return job.result  # type: ignore[return-value] # there is a result where there is no error

    def _execute(self, job: _Job[Any]) -> None:
        self._waiting.remove(job)
        self._disk.finish_commits()
        self._commit(job)
        if job.error is None:
            # What follows a checkpoint is an effect: often the start of a tool.
            self._chance.may_pause(self._host, 0.01 if job.claim is None else 0.08)

    def _commit(self, job: _Job[Any]) -> None:
        try:
            job.result, changes = self._disk.write(job.work)
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            job.error = error
        else:
            if changes:
                self._committed(job.claim)
