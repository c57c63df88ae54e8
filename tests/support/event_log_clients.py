"""A run's single writer as an event log sees it, and readers that come and go."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Self

from msgspec.structs import replace
from tests.support.values import Make

from holdfast.core.events import Event, Fact, MessageStored, RunEnded, TextStreamed
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunStatus, StopReason, Usage
from holdfast.core.threads import Thread
from holdfast.ports.event_log import EventLog
from holdfast.ports.store import Store, Transaction

WAIT_SECONDS = 20
ENDED = RunEnded(RunStatus.COMPLETED, StopReason.END_TURN, Usage(1), 1, 1)


def word(text: str) -> TextStreamed:
    return TextStreamed("message-1", "step-1", 0, text)


class Writer:
    """Numbers facts, shows them, keeps them: in the order in which the engine does it."""

    def __init__(self, store: Store, log: EventLog, run: Run, thread: Thread, make: Make) -> None:
        self._store = store
        self._log = log
        self.thread = thread
        self._make = make
        self._unwritten: list[Event] = []
        self._words = itertools.count()
        self.run = run
        # Its own events have higher numbers than this.
        self.born = run.last_event_seq

    @classmethod
    async def begin(cls, store: Store, log: EventLog, make: Make, ahead: int = 0) -> Self:
        """A run of an agent of its own. ``ahead``: how many numbers it may show before they are durable."""
        agent = make.agent()
        thread = make.thread(agent)
        run = make.run(thread, status=RunStatus.RUNNING, reserved_seq=ahead)

        def work(tx: Transaction) -> None:
            tx.agents.add(agent)
            tx.threads.add(thread)
            tx.runs.add(run)

        log.open(run.id)
        await store.write(work)
        return cls(store, log, run, thread, make)

    async def restart(self, log: EventLog, ahead: int = 0) -> "Writer":
        """The writer of the next process: it goes on above what anybody may have seen."""
        run = await self._store.read(lambda tx: tx.runs.find(self.run.id))
        assert run is not None
        mark = run.highest_seq
        log.open(run.id, after=mark)
        run = replace(run, last_event_seq=mark, reserved_seq=mark + ahead)
        await self._store.write(lambda tx: tx.runs.save(run))
        return Writer(self._store, log, run, self.thread, self._make)

    def publish(self, count: int = 1) -> list[Event]:
        """Words that are not durable yet."""
        events = self._number_facts(
            [word(f"{self.born}.{next(self._words)} ") for _ in range(count)]
        )
        self._unwritten += events
        self._log.publish(events)
        return events

    async def save(self, ahead: int = 0) -> None:
        """Make durable what was shown, and reserve numbers."""
        events, self._unwritten = self._unwritten, []
        reserved = self.run.last_event_seq + ahead

        def work(tx: Transaction) -> None:
            tx.events.append(events)
            tx.runs.reserve_seq(self.run, reserved)

        await self._store.write(work)
        self.run = replace(self.run, reserved_seq=reserved)
        self._log.mark_durable(self.run.id, self.run.last_event_seq)

    async def store_message(self) -> list[Event]:
        """A checkpoint with a row of two pieces."""
        row = self._make.message(self.thread, run_id=self.run.id)
        (stored,) = await self._store.write(lambda tx: tx.messages.append([row]))
        return await self._checkpoint([MessageStored(stored, 0), MessageStored(stored, 1)])

    async def end(self) -> list[Event]:
        return await self._checkpoint([ENDED], Signal.COMPLETE)

    async def _checkpoint(self, facts: list[Fact], signal: Signal | None = None) -> list[Event]:
        events = self._number_facts(facts)
        unwritten, self._unwritten = self._unwritten, []

        def work(tx: Transaction) -> None:
            tx.events.append([*unwritten, *events])
            if signal is None:
                tx.runs.save(self.run)
            else:
                tx.runs.transition(self.run, signal)

        await self._store.write(work)
        self._log.mark_durable(self.run.id, self.run.last_event_seq)
        self._log.publish(events)
        return events

    def _number_facts(self, facts: Sequence[Fact]) -> list[Event]:
        first = self.run.last_event_seq + 1
        events = [Event(self.run.id, seq, fact) for seq, fact in enumerate(facts, first)]
        self.run = replace(self.run, last_event_seq=first + len(events) - 1)
        return events


class Reader:
    """Reads in a task of its own; ``seen`` is what it was given."""

    def __init__(self, log: EventLog, run_id: str, after: int = 0) -> None:
        self.after = after
        self.seen: list[Event] = []
        self.batches = 0
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(log.follow(run_id, after)))

    async def _read(self, batches: AsyncGenerator[Sequence[Event], None]) -> None:
        async with aclosing(batches):
            async for events in batches:
                self.seen += events
                self.batches += 1
                async with self._news:
                    self._news.notify_all()

    async def wait_for(self, seq: int) -> None:
        """Wait until it was given the event of this number."""
        async with asyncio.timeout(WAIT_SECONDS), self._news:
            await self._news.wait_for(lambda: bool(self.seen) and self.seen[-1].seq >= seq)

    async def read_to_end(self) -> list[Event]:
        await asyncio.wait_for(self._task, WAIT_SECONDS)
        return self.seen

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task], timeout=WAIT_SECONDS)


async def read(log: EventLog, run_id: str, after: int = 0) -> list[Event]:
    return await Reader(log, run_id, after).read_to_end()
