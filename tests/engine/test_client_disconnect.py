"""Callers that go away, and a store that is out of reach for a moment: nothing is lost by either."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.doubles.model import HangingModel, call_answer
from tests.doubles.toolbox import HangingToolbox
from tests.support.engine_runs import use_model, wait_until_set
from tests.support.rig import ACTOR, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.messages import Outcome, Role
from holdfast.core.paging import Page
from holdfast.core.runs import RunQuery, RunStatus
from holdfast.engine import worker
from holdfast.engine.worker import Worker
from holdfast.errors import StoreUnavailable
from holdfast.ports.services import Limits
from holdfast.ports.store import Store, Transaction
from holdfast.usecases import messages, runs

T = TypeVar("T")


class GatedStore:
    """Tells its callers of a commit only when the gate is open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.committed = asyncio.Event()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        result = await self._store.write(work)
        self.committed.set()
        await self.gate.wait()
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def disconnect_after_commit(task: asyncio.Task[object], store: GatedStore) -> None:
    """Its caller goes away after the commit and before it has heard of it."""
    await wait_until_set(store.committed)
    task.cancel()
    await asyncio.wait([task])
    store.gate.set()


async def test_a_message_is_answered_though_its_sender_went_away(rig: Rig) -> None:
    agent = await rig.make_agent()
    store = GatedStore(rig.services.store)
    sender = Rig(rig.services.store)
    sender.services = replace(rig.services, store=store)
    async with rig.run_worker():
        # The worker has looked for what was left behind before this one comes.
        await rig.say(agent)
        await disconnect_after_commit(asyncio.create_task(sender.submit(agent)), store)
        query = RunQuery(page=Page(limit=10), agent_ids=(agent.id,))
        for run in await runs.list_runs(rig.services, ACTOR, query):
            assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_a_run_is_stopped_though_the_one_who_cancelled_it_went_away(rig: Rig) -> None:
    agent = await rig.make_agent()
    model = HangingModel()
    use_model(rig, model)
    store = GatedStore(rig.services.store)
    async with rig.run_worker():
        run = await rig.submit(agent)
        await wait_until_set(model.silent)
        services = replace(rig.services, store=store)
        await disconnect_after_commit(
            asyncio.create_task(runs.cancel(services, ACTOR, run.id)), store
        )
        assert (await rig.wait_for_end(run)).status is RunStatus.CANCELLED


class FailingStore:
    """Out of reach for one write, or for those that do this."""

    def __init__(self, store: Store, *, doing: str = "nothing") -> None:
        self._store = store
        self._doing = doing
        self._left = -2

    def fail_after(self, writes: int) -> None:
        self._left = writes

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._left -= 1
        if self._left == -1 or self._doing in getattr(work, "__qualname__", ""):
            raise StoreUnavailable("The store was out of reach.")
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def test_a_run_that_could_not_be_claimed_at_once_is_claimed_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STORE_RETRY_SECONDS", 0)
    agent = await rig.make_agent()
    store = FailingStore(rig.services.store)
    rig.services = replace(rig.services, store=store)
    async with rig.run_worker():
        await rig.say(agent)
        store.fail_after(1)
        run = await rig.submit(agent)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_a_send_that_cannot_be_taken_back_keeps_its_turn(rig: Rig) -> None:
    agent = await rig.make_agent()
    shaky = FailingStore(rig.services.store, doing="_withdraw")
    rig.services = replace(rig.services, store=shaky, limits=Limits(busy_wait_seconds=0))
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        first, second = await rig.submit(agent), await rig.submit(agent)
        with pytest.raises(StoreUnavailable):
            await messages.wait_for_turn(rig.services, second)
        rig.model.gate.set()
        for run in (first, second):
            assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED


async def test_a_result_that_cannot_be_put_on_record_is_written_with_the_others(rig: Rig) -> None:
    agent = await rig.make_agent("fast_a", "fast_b")
    rig.services = replace(
        rig.services, store=FailingStore(rig.services.store, doing="_save_result")
    )
    rig.model.script = [call_answer(("c1", "fast_a"), ("c2", "fast_b"))]
    async with rig.run_worker():
        reply = await rig.say(agent)
    assert reply.ended.status is RunStatus.COMPLETED
    (row,) = [row for row in await rig.context(agent) if row.role is Role.TOOL]
    assert [item.outcome for item in row.tool_returns] == [Outcome.FINISHED] * 2


async def test_new_messages_wait_behind_what_a_dead_process_left(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent("hang")
    first.model.script = [call_answer(("c1", "hang"))]
    toolbox = HangingToolbox()
    first.services = replace(first.services, toolbox=toolbox)
    async with first.run_worker():
        interrupted = await first.submit(agent, "one")
        await wait_until_set(toolbox.hanging)
    at_work = Worker(second.services)
    new = await second.submit(agent, "two")
    task = asyncio.create_task(at_work.run())
    for run in (interrupted, new):
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    task.cancel()
    await asyncio.wait([task])
    assert [row.text for row in await second.context(agent) if row.role is Role.USER] == [
        "one",
        "two",
    ]
