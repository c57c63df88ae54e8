"""A run that is told as it happens: seen at once, durable soon, and no number given twice, whatever fails."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.doubles.model import Moment, text_answer
from tests.doubles.store import CrashingStore
from tests.support.rig import WAIT_SECONDS, Rig

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import tool_rules as rules
from holdfast.core.events import CallStreamed, Event, RunEnded, TextStreamed
from holdfast.core.messages import ToolCall
from holdfast.core.runs import Run, RunStatus, StopReason, Usage
from holdfast.core.turn import Finish
from holdfast.engine import claim, event_writer, recovery, worker
from holdfast.engine.event_writer import RESERVED_AHEAD, EventWriter
from holdfast.engine.state import load_state
from holdfast.errors import ModelOverloaded, StoreUnavailable
from holdfast.ports.model import Answer, TextDelta, ToolCallDelta
from holdfast.ports.services import Services
from holdfast.ports.store import Store, Transaction

T = TypeVar("T")


@pytest.fixture(autouse=True)
def write_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests wait for writes, not for the time until them."""
    monkeypatch.setattr(event_writer, "WRITE_AFTER_SECONDS", 0.0)


class CountingStore:
    """Counts writes that are done; while it is paused they wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._changed = asyncio.Condition()
        self.waiting = asyncio.Event()
        self.done = 0

    def pause(self) -> None:
        self.waiting.clear()
        self._may_go_on.clear()

    def go_on(self) -> None:
        self._may_go_on.set()

    async def wait_for_writes(self, times: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.done >= times)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self.waiting.set()
        await self._may_go_on.wait()
        result = await self._store.write(work)
        self.done += 1
        async with self._changed:
            self._changed.notify_all()
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


@pytest.fixture
def counting_store(store: SqliteStore, rig: Rig) -> CountingStore:
    """The rig's store from now on."""
    counting_store = CountingStore(store)
    rig.services = replace(rig.services, store=counting_store)
    return counting_store


def words(*texts: str) -> tuple[Moment, ...]:
    return tuple(TextDelta(text) for text in texts)


def complete_stream(*moments: Moment) -> tuple[Moment, ...]:
    """A stream that ends as it should, with the whole answer."""
    text = "".join(moment.text for moment in moments if isinstance(moment, TextDelta))
    return (*moments, text_answer(text))


async def follow_events(
    services: Services, run: Run, until: int | None = None, after: int = 0
) -> list[Event]:
    """What a client is given: up to the end, or up to this number."""
    seen: list[Event] = []
    async with (
        asyncio.timeout(WAIT_SECONDS),
        aclosing(services.events.follow(run.id, after)) as told,
    ):
        async for events in told:
            seen += events
            if until is not None and seen[-1].seq >= until:
                break
    return seen


async def stored_events(rig: Rig, run: Run) -> list[Event]:
    return list(await rig.read(lambda tx: tx.events.list_after(run.id, 0, 10_000)))


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.fact.text for event in events if isinstance(event.fact, TextStreamed))


def numbers(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events]


async def test_a_word_is_seen_before_it_is_durable_and_durable_after_one_write(
    rig: Rig, counting_store: CountingStore
) -> None:
    agent = await rig.make_agent()
    speak, finish = asyncio.Event(), asyncio.Event()
    rig.model.script = [complete_stream(speak, *words("One"), finish, *words(" two"))]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        counting_store.pause()
        speak.set()
        seen = await follow_events(rig.services, run, until=1)
        assert text_of(seen) == "One"
        assert await stored_events(rig, run) == []
        await asyncio.wait_for(counting_store.waiting.wait(), WAIT_SECONDS)
        before = counting_store.done
        counting_store.go_on()
        await counting_store.wait_for_writes(before + 1)
        assert await stored_events(rig, run) == seen
        finish.set()
        whole = await follow_events(rig.services, run)
    assert text_of(whole) == "One two"
    assert numbers(whole) == [1, 2, 3]
    assert await stored_events(rig, run) == whole


async def test_a_word_that_arrives_during_a_write_does_not_wait_for_another_word(
    rig: Rig, counting_store: CountingStore
) -> None:
    agent = await rig.make_agent()
    speak, again, silence = asyncio.Event(), asyncio.Event(), asyncio.Event()
    rig.model.script = [complete_stream(speak, *words("One"), again, *words(" two"), silence)]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        counting_store.pause()
        speak.set()
        await asyncio.wait_for(counting_store.waiting.wait(), WAIT_SECONDS)
        again.set()
        await follow_events(rig.services, run, until=2)
        for _ in range(10):  # The time until the next write passes while this one is under way.
            await asyncio.sleep(0)
        before = counting_store.done
        counting_store.go_on()
        await counting_store.wait_for_writes(before + 2)
        assert text_of(await stored_events(rig, run)) == "One two"


async def test_a_long_answer_takes_more_numbers_than_are_reserved_at_a_time(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.script = [complete_stream(*words(*(f"{number} " for number in range(5_000))))]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        seen = await follow_events(rig.services, run)
    assert numbers(seen) == [*range(1, 5_002)]
    assert text_of(seen).split() == [str(number) for number in range(5_000)]
    assert isinstance(seen[-1].fact, RunEnded)
    assert await stored_events(rig, run) == seen
    (answer,) = (await rig.context(agent))[-1:]
    assert answer.text == text_of(seen)


async def test_more_facts_at_once_than_are_reserved_at_a_time_are_written(rig: Rig) -> None:
    """A held call is told when the answer is complete, however long its arguments are."""
    agent = await rig.make_agent("roll", rules=(rules.RequiresApproval(tool_name="roll"),))
    pieces = ['{"sides": "', *["6"] * (3 * RESERVED_AHEAD), '"}']
    call = ToolCall(id="c1", name="roll", arguments="".join(pieces))
    answer = Answer(content=(), tool_calls=(call,), usage=Usage(10, 5), finish=Finish.TOOL_CALLS)
    rig.model.script = [(*(ToolCallDelta("c1", "roll", piece) for piece in pieces), answer)]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        seen = await follow_events(rig.services, run)
    told = [event.fact.arguments for event in seen if isinstance(event.fact, CallStreamed)]
    assert "".join(told) == call.arguments
    assert numbers(seen) == [*range(1, len(seen) + 1)]
    assert await stored_events(rig, run) == seen


async def test_a_stream_that_breaks_off_keeps_its_words_and_numbers(rig: Rig) -> None:
    agent = await rig.make_agent()
    rig.model.script = [(*words("One", " two"), ModelOverloaded("Too busy."))]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        seen = await follow_events(rig.services, run)
        assert (await rig.wait_for_end(run)).status is RunStatus.FAILED
    assert text_of(seen) == "One two"
    assert numbers(seen) == [1, 2, 3]
    assert await stored_events(rig, run) == seen


# The first write claims the run; each of the others has a few words, and reserves numbers for the next.
@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
async def test_a_client_that_comes_back_after_a_crash_gets_the_rest_once_and_the_ending(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, at: int, after_commit: bool
) -> None:
    for module in (claim, recovery, event_writer):
        monkeypatch.setattr(module, "RESERVED_AHEAD", 10)
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    first.model.script = [
        complete_stream(*words(*"abcdefghijklmnopqrstuvwxyz" * 40), asyncio.Event())
    ]
    second.model.script = [complete_stream(*words("Once", " more."))]
    run = await first.submit(agent, stream_tokens=True)
    # As for a run that is claimed when it is stored: its reader is there before the first event.
    first.services.events.open(run.id)
    client = asyncio.create_task(follow_events(first.services, run))
    dying = CrashingStore(store, at, after_commit=after_commit)
    first.services = replace(first.services, store=dying)
    async with first.run_worker():
        await asyncio.wait_for(dying.died.wait(), WAIT_SECONDS)
    first.services.events.disconnect_readers()
    seen = await client
    kept = await stored_events(first, run)
    assert seen[: len(kept)] == kept, "what is durable is what was shown"
    mark = await second.read(lambda tx: tx.runs.find(run.id))
    assert mark is not None
    async with second.run_worker():
        rest = await follow_events(second.services, run, after=seen[-1].seq if seen else 0)
    assert text_of(rest) == "Once more."
    assert isinstance(rest[-1].fact, RunEnded)
    assert rest[0].seq == mark.highest_seq + 1 > numbers(seen)[-1]
    assert numbers(rest) == [*range(rest[0].seq, rest[0].seq + 3)], "one jump"
    assert await follow_events(second.services, run) == kept + rest


async def test_a_server_that_stops_in_mid_stream_keeps_what_was_shown(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_writer, "WRITE_AFTER_SECONDS", 3_600)
    first, second = Rig(store), Rig(store)
    agent = await first.make_agent()
    first.model.script = [complete_stream(*words("One", " two"), asyncio.Event())]
    second.model.script = [complete_stream(*words("Three"))]
    async with first.run_worker():
        run = await first.submit(agent, stream_tokens=True)
        seen = await follow_events(first.services, run, until=2)
        assert await stored_events(first, run) == []
    assert await stored_events(first, run) == seen
    async with second.run_worker():
        rest = await follow_events(second.services, run, after=2)
    assert text_of(rest) == "Three"
    assert await stored_events(second, run) == seen + rest


async def test_no_write_is_left_for_after_the_close(
    rig: Rig, counting_store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would reach a run that another worker may have (simulation seed 73788)."""
    monkeypatch.setattr(event_writer, "WRITE_AFTER_SECONDS", 3_600)
    run = await rig.submit(await rig.make_agent(), stream_tokens=True)
    writer = EventWriter(rig.services, run)
    await writer.write([TextStreamed("message-1", "step-1", 0, "One")])
    counting_store.pause()
    writer._start_write()
    await asyncio.wait_for(counting_store.waiting.wait(), WAIT_SECONDS)
    # It comes during a write, so the end of that write schedules the next.
    await writer.write([TextStreamed("message-1", "step-1", 0, " two")])
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    counting_store.go_on()
    await asyncio.wait_for(closing, WAIT_SECONDS)

    assert text_of(await stored_events(rig, run)) == "One two"
    assert writer._timer is None


async def test_no_write_begins_between_the_last_one_and_the_checkpoint(
    rig: Rig, counting_store: CountingStore
) -> None:
    """Its events would be stored after the end of the run, or its numbers reserved (simulation seeds 8153, 10644)."""
    run = await rig.submit(await rig.make_agent(), stream_tokens=True)
    state = await rig.read(lambda tx: load_state(tx, rig.services, run))
    writer = EventWriter(rig.services, run)
    await writer.write([TextStreamed("message-1", "step-1", 0, "One")])
    counting_store.pause()
    await asyncio.wait_for(counting_store.waiting.wait(), WAIT_SECONDS)
    # It comes during a write, so the end of that write schedules the next, and the loop is late.
    await writer.write([TextStreamed("message-1", "step-1", 0, " two")])
    detaching = asyncio.create_task(writer.detach(state))
    await asyncio.sleep(0)
    counting_store.go_on()
    detached = await asyncio.wait_for(detaching, WAIT_SECONDS)

    assert writer._write_task is None
    assert writer._timer is None
    stored = await stored_events(rig, run)
    assert text_of([*stored, *detached.pending_events]) == "One two"


class FailingStore(CountingStore):
    """Fails one write, as a database that is away for a moment."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.fail_next = False

    async def write(self, work: Callable[[Transaction], T]) -> T:
        if self.fail_next:
            self.fail_next = False
            raise StoreUnavailable("Away for a moment.")
        return await super().write(work)


async def test_a_run_whose_words_cannot_be_kept_is_interrupted_and_goes_on_with_fresh_numbers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STORE_RETRY_SECONDS", 0)
    failing = FailingStore(rig.services.store)
    rig.services = replace(rig.services, store=failing)
    agent = await rig.make_agent()
    speak = asyncio.Event()
    rig.model.script = [
        (speak, *words(*"abcdefghij" * 100), text_answer("never")),
        complete_stream(*words("Again")),
    ]
    async with rig.run_worker():
        run = await rig.submit(agent, stream_tokens=True)
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        failing.fail_next = True
        speak.set()
        seen = await follow_events(rig.services, run)
        replayed = await stored_events(rig, run)
    assert text_of(replayed) == "Again", "the words before were never kept"
    assert seen[-len(replayed) :] == replayed
    assert replayed[0].seq == RESERVED_AHEAD + 1
    assert numbers(seen) == sorted(set(numbers(seen)))
    assert len(rig.model.questions) == 2
    ended = replayed[-1].fact
    assert isinstance(ended, RunEnded)
    assert ended.stop_reason is StopReason.END_TURN
