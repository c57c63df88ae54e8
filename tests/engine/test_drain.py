"""A server that stops in order: what is under way may end, what is not is left whole, and nobody waits in vain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.queues import add_run, find_run
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.values import Make

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.events import Event, RunEnded, TextStreamed
from holdfast.core.messages import Outcome, Role
from holdfast.core.runs import Run, RunStatus
from holdfast.engine import worker
from holdfast.engine.worker import Worker
from holdfast.errors import ServerStopping
from holdfast.ports.bell import RUNS
from holdfast.ports.model import TextDelta
from holdfast.usecases import messages, runs

LONG_SECONDS = 3_600.0


class RunningWorker:
    """A worker that a test can dismiss."""

    def __init__(self, rig: Rig) -> None:
        self.worker = Worker(rig.services)
        self.task = asyncio.create_task(self.worker.run())

    async def drain(self, seconds: float) -> None:
        self.worker.drain(seconds)
        await self.wait_for_end()

    async def wait_for_end(self) -> None:
        await asyncio.wait_for(self.task, WAIT_SECONDS)


@asynccontextmanager
async def run_worker(rig: Rig) -> AsyncIterator[RunningWorker]:
    duty = RunningWorker(rig)
    try:
        yield duty
    finally:
        duty.task.cancel()
        await asyncio.wait([duty.task], timeout=WAIT_SECONDS)


async def wait_for_event(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), WAIT_SECONDS)


async def status_of(rig: Rig, run: Run) -> RunStatus:
    return (await rig.read(lambda tx: tx.runs.get(ACTOR.organization_id, run.id))).status


async def read_events(rig: Rig, run: Run, after: int = 0) -> list[Event]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [
            event async for batch in rig.services.events.follow(run.id, after) for event in batch
        ]


async def test_a_worker_without_runs_leaves_at_once(rig: Rig) -> None:
    async with run_worker(rig) as duty:
        await duty.drain(LONG_SECONDS)


async def test_a_run_that_ends_in_time_is_completed(rig: Rig) -> None:
    agent = await rig.make_agent("roll")
    rig.model.script = [call_answer(("c1", "roll")), text_answer("Four.")]
    rig.toolbox.gate = asyncio.Event()
    async with run_worker(rig) as duty:
        run = await rig.submit(agent)
        await wait_for_event(rig.toolbox.running)
        duty.worker.drain(LONG_SECONDS)
        rig.toolbox.gate.set()
        await duty.wait_for_end()

    assert await status_of(rig, run) is RunStatus.COMPLETED
    assert [row.text for row in await rig.context(agent)][-1] == "Four."


async def test_a_run_that_does_not_end_in_time_is_left_to_the_next_worker(
    store: SqliteStore,
) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent("roll")
    first.model.script = [call_answer(("c1", "roll"))]
    first.toolbox.gate = asyncio.Event()
    async with run_worker(first) as duty:
        run = await first.submit(agent)
        await wait_for_event(first.toolbox.running)
        await duty.drain(0)
    assert await status_of(first, run) is RunStatus.RUNNING

    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    (result,) = second.model.questions[0].history[-1].tool_returns
    assert result.outcome is Outcome.UNKNOWN
    assert second.toolbox.started == []


async def test_no_run_is_begun_any_more_and_those_that_wait_are_run_by_the_next_worker(
    store: SqliteStore,
) -> None:
    first, second = Rig(store), Rig(store)
    agent, other = await first.make_agent(), await first.make_agent()
    first.model.gate = asyncio.Event()
    async with run_worker(first) as duty:
        live = await first.submit(agent, "one")
        await wait_for_event(first.model.asked)
        waiting = await first.submit(agent, "two")
        duty.worker.drain(LONG_SECONDS)
        late = await first.submit(other, "three")
        first.model.gate.set()
        await duty.wait_for_end()
    assert await status_of(first, live) is RunStatus.COMPLETED
    assert await status_of(first, waiting) is RunStatus.QUEUED
    assert await status_of(first, late) is RunStatus.QUEUED
    assert len(first.model.questions) == 1

    async with second.run_worker():
        for run in (waiting, late):
            assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
    assert [r.text for r in await second.context(agent) if r.role is Role.USER] == ["one", "two"]


async def test_a_run_that_was_being_stored_is_given_back_while_others_end(
    store: SqliteStore, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when they have ended: another server has room for it now."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.01)
    rig = Rig(store)
    agent, other = await rig.make_agent(), await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with run_worker(rig) as duty:
        live = await rig.submit(agent)
        await wait_for_event(rig.model.asked)
        claimant = rig.lease.claimant
        duty.worker.drain(LONG_SECONDS)
        stored = await add_run(store, make.run(make.thread(other)), claimant)
        assert stored.owner_id is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while (await find_run(store, stored.id)).owner_id is not None:
                await rig.services.bell.wait(RUNS)
        assert (await find_run(store, live.id)).owner_id == stored.owner_id
        rig.model.gate.set()
        await duty.wait_for_end()
    assert await status_of(rig, live) is RunStatus.COMPLETED


async def test_a_waiting_client_learns_that_the_run_is_kept(rig: Rig) -> None:
    """The one whose run was left, the next in line, and the one after."""
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with run_worker(rig) as duty:
        sent = [await rig.submit(agent, text) for text in ("one", "two", "three")]
        callers = [asyncio.create_task(messages.wait(rig.services, run)) for run in sent]
        await wait_for_event(rig.model.asked)
        await duty.drain(0)
        rig.services.events.disconnect_readers()
        async with asyncio.timeout(WAIT_SECONDS):
            answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ServerStopping] * 3
    assert await status_of(rig, sent[2]) is RunStatus.QUEUED


async def test_a_reader_gets_all_that_was_said_and_resumes_with_the_next_worker(
    store: SqliteStore,
) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    first.model.script = [(TextDelta("I was about"), asyncio.Event())]
    second.model.script = [text_answer("Second try.")]
    async with run_worker(first) as duty:
        run = await first.submit(agent, stream_tokens=True)
        batches = first.services.events.follow(run.id)
        seen: list[Event] = []
        async with asyncio.timeout(WAIT_SECONDS):
            while not any(isinstance(event.fact, TextStreamed) for event in seen):
                seen += await anext(batches)
        await duty.drain(0)
        first.services.events.disconnect_readers()
        async with asyncio.timeout(WAIT_SECONDS):
            seen += [event async for batch in batches for event in batch]
    assert not any(isinstance(event.fact, RunEnded) for event in seen)

    async with second.run_worker():
        rest = await read_events(second, run, after=seen[-1].seq)
    assert isinstance(rest[-1].fact, RunEnded)
    assert [event.seq for event in await read_events(second, run)] == [
        e.seq for e in (*seen, *rest)
    ]


async def test_a_run_can_be_cancelled_while_the_worker_waits_for_it(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.gate = asyncio.Event()
    async with run_worker(rig) as duty:
        run = await rig.submit(agent)
        await wait_for_event(rig.model.asked)
        duty.worker.drain(LONG_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await runs.cancel(rig.services, ACTOR, run.id)).status is RunStatus.CANCELLED
        await duty.wait_for_end()


async def test_a_worker_that_is_cancelled_does_not_wait_any_longer(store: SqliteStore) -> None:
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    first.model.gate = asyncio.Event()
    async with run_worker(first) as duty:
        run = await first.submit(agent)
        await wait_for_event(first.model.asked)
        duty.worker.drain(LONG_SECONDS)
        duty.task.cancel()
        await asyncio.wait([duty.task], timeout=WAIT_SECONDS)
        assert duty.task.done()

    async with second.run_worker():
        assert (await second.wait_for_end(run)).status is RunStatus.COMPLETED
