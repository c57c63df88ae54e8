"""Passages that the tools of a run write: a rollback takes all of them back, whenever it comes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any, TypeVar

import pytest
from tests.support.database_facts import DatabaseFacts
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.waiting import eventually

from holdfast.core.agents import Agent
from holdfast.core.cancellation import Action
from holdfast.core.runs import RunStatus
from holdfast.errors import Conflict
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import passages, runs
from holdfast.usecases.passages import NewPassage

T = TypeVar("T")


async def count(rig: Rig, agent: Agent) -> int:
    counts = await rig.read(lambda tx: tx.passages.count_by_agent([agent.id]))
    return counts[agent.id]


class HeldStore:
    """A store whose writes are done at once and committed only when they are released."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written = Event()
        self.released = Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        def work_and_wait(tx: Transaction) -> T:
            result = work(tx)
            self.written.set()
            assert self.released.wait(WAIT_SECONDS)
            return result

        return await self._store.write(work_and_wait)


def is_anybody_waiting(url: str) -> bool:
    """Whether a transaction waits for another one. On SQLite it waits for its turn, before it begins."""
    if not url.startswith("postgresql"):
        return True
    query = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock'"
    )
    return bool(DatabaseFacts(url).fetch(query))


async def test_a_run_that_has_ended_stores_nothing_more(rig: Rig) -> None:
    agent = await rig.make_agent()
    async with rig.run_worker():
        run = (await rig.say(agent)).run

    with pytest.raises(Conflict, match=f"The run {run.id} has ended; nothing was stored."):
        await passages.insert_for_agent(
            rig.services, ACTOR, agent.id, NewPassage(text="late", run_id=run.id)
        )

    assert await count(rig, agent) == 0


async def test_a_roll_back_takes_back_what_is_written_at_the_same_moment(
    any_store: Store, blank_store_url: str
) -> None:
    rig = Rig(any_store)
    agent = await rig.make_agent()
    run = await rig.submit(agent)
    held: Any = HeldStore(any_store)
    late = replace(rig.services, store=held)
    item = NewPassage(text="wrong", run_id=run.id)
    writing = asyncio.create_task(passages.insert_for_agent(late, ACTOR, agent.id, item))
    await asyncio.to_thread(held.written.wait, WAIT_SECONDS)
    cancelling = asyncio.create_task(
        runs.cancel(rig.services, ACTOR, run.id, action=Action.ROLLBACK)
    )
    await eventually(lambda: cancelling.done() or is_anybody_waiting(blank_store_url))
    held.released.set()

    await asyncio.wait_for(writing, WAIT_SECONDS)
    ended = await asyncio.wait_for(cancelling, WAIT_SECONDS)

    assert ended.status is RunStatus.CANCELLED
    assert ended.cancellation is not None
    assert ended.cancellation.deleted_passages == 1
    assert await count(rig, agent) == 0
