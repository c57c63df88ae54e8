"""Runs, steps and events."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from sqlalchemy import Select, text
from tests.support.values import Make, add_thread, moment
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.store import run_list, runs
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.events import Event, MessageStored, RunEnded, TextStreamed, ToolProgressed
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import Signal
from holdfast.core.messages import Text
from holdfast.core.models import ModelChoice
from holdfast.core.paging import Order, Page
from holdfast.core.prices import Costs
from holdfast.core.runs import (
    ClientTool,
    Progress,
    Run,
    RunFailure,
    RunRequest,
    RunStatus,
    StopReason,
    Usage,
)
from holdfast.core.steps import Step, StepQuery, StepStatus
from holdfast.errors import IllegalTransition, NotFound, StaleRun
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ALL = Page(limit=50, order=Order.ASC)

change = msgspec.structs.replace


async def add_runs(store: Store, *runs: Run) -> None:
    def work(tx: Transaction) -> None:
        for run in runs:
            tx.runs.add(run)

    await store.write(work)


async def signal(store: Store, run: Run, what: Signal) -> Run:
    return await store.write(lambda tx: tx.runs.transition(run, what))


async def test_a_run_comes_back_with_all_its_fields(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    run = make.run(
        thread,
        input=(make.message(thread, "Hi"),),
        request=RunRequest(max_steps=3, client_tools=(ClientTool("t", parameters={"a": 1}),)),
        progress=Progress(steps_taken=2, called=("f", "g")),
        usage=Usage(1, 2, 3),
        background=True,
        failure=RunFailure("llm_error", "no"),
        metadata={"k": 1},
        tools_used=("f",),
        completed_at=moment(3),
        total_duration_ns=2**40,
        project_id="p",
    )
    await add_runs(any_store, run)
    assert await any_store.read(lambda tx: tx.runs.get(ORG, run.id)) == run
    assert await any_store.read(lambda tx: tx.runs.find(run.id)) == run
    assert await any_store.read(lambda tx: tx.runs.find("run-none")) is None
    with pytest.raises(NotFound, match=f"Run with ID {run.id} not found"):
        await any_store.read(lambda tx: tx.runs.get("org-x", run.id))


async def test_a_transition_writes_the_status_and_the_other_fields(
    any_store: Store, make: Make
) -> None:
    run = make.run(await add_thread(any_store, make))
    await add_runs(any_store, run)
    claimed = await signal(any_store, change(run, started_at=moment(1)), Signal.CLAIM)
    assert claimed.status is RunStatus.RUNNING
    ended = await signal(
        any_store, change(claimed, stop_reason=StopReason.END_TURN, usage=Usage(5)), Signal.COMPLETE
    )
    assert await any_store.read(lambda tx: tx.runs.find(run.id)) == ended
    assert (ended.started_at, ended.usage, ended.status) == (moment(1), Usage(5), "completed")


async def test_a_run_whose_status_changed_cannot_be_changed_by_an_older_view(
    any_store: Store, make: Make
) -> None:
    run = make.run(await add_thread(any_store, make))
    await add_runs(any_store, run)
    await signal(any_store, run, Signal.CANCEL)
    with pytest.raises(StaleRun):
        await signal(any_store, run, Signal.CLAIM)
    with pytest.raises(StaleRun):
        await any_store.write(lambda tx: tx.runs.save(change(run, last_event_seq=1)))
    found = await any_store.read(lambda tx: tx.runs.find(run.id))
    assert found == change(run, status=RunStatus.CANCELLED)


async def test_a_transition_that_is_not_in_the_lifecycle_is_refused(
    any_store: Store, make: Make
) -> None:
    run = make.run(await add_thread(any_store, make))
    await add_runs(any_store, run)
    with pytest.raises(IllegalTransition):
        await signal(any_store, run, Signal.COMPLETE)


async def test_saving_keeps_the_status(any_store: Store, make: Make) -> None:
    run = make.run(await add_thread(any_store, make))
    await add_runs(any_store, run)
    saved = change(run, progress=Progress(steps_taken=4), last_event_seq=7)
    await any_store.write(lambda tx: tx.runs.save(saved))
    assert await any_store.read(lambda tx: tx.runs.find(run.id)) == saved


async def test_input_and_request_of_a_run_never_change(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    run = make.run(thread, input=(make.message(thread),), request=RunRequest(max_steps=3))
    await add_runs(any_store, run)
    forgetful = change(run, input=(), request=RunRequest(), last_event_seq=1)
    await any_store.write(lambda tx: tx.runs.save(forgetful))
    found = await any_store.read(lambda tx: tx.runs.find(run.id))
    assert found == change(run, last_event_seq=1)


@pytest.mark.wire(124)
async def test_an_update_merges_the_keys_of_the_metadata(any_store: Store, make: Make) -> None:
    run = make.run(await add_thread(any_store, make), metadata={"kept": 1, "changed": 1})
    await add_runs(any_store, run)

    def annotate(tx: Transaction) -> Run:
        return tx.runs.add_metadata(ORG, run.id, {"changed": 2, "new": {"a": "ü"}})

    merged = change(run, metadata={"kept": 1, "changed": 2, "new": {"a": "ü"}})
    assert await any_store.write(annotate) == merged
    # The worker that executes the run has not seen it and does not change it.
    claimed = await signal(any_store, run, Signal.CLAIM)
    await any_store.write(lambda tx: tx.runs.save(change(claimed, last_event_seq=3)))
    found = await any_store.read(lambda tx: tx.runs.find(run.id))
    assert found == change(merged, status=RunStatus.RUNNING, last_event_seq=3)
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.runs.add_metadata("org-x", run.id, {}))


@pytest.mark.wire(126)
@pytest.mark.parametrize("ending", [Signal.COMPLETE, Signal.FAIL, Signal.PAUSE, Signal.CANCEL])
async def test_a_run_that_ends_frees_its_thread(
    any_store: Store, make: Make, ending: Signal
) -> None:
    """There is no lock that could be left over: the run's status holds the thread."""
    thread = await add_thread(any_store, make)
    run, following = make.run(thread, status=RunStatus.RUNNING), make.run(thread)
    await add_runs(any_store, run, following)
    with pytest.raises(StaleRun):
        await signal(any_store, following, Signal.CLAIM)
    ended = await signal(any_store, run, ending)
    if ending is Signal.CANCEL:
        await signal(any_store, ended, Signal.CONFIRM_CANCEL)
    claimed = await signal(any_store, following, Signal.CLAIM)
    assert claimed.status is RunStatus.RUNNING


@pytest.mark.parametrize("held_by", [RunStatus.RUNNING, RunStatus.CANCELLING])
async def test_a_held_thread_cannot_be_claimed(
    any_store: Store, make: Make, held_by: RunStatus
) -> None:
    thread = await add_thread(any_store, make)
    holder, second = make.run(thread, status=held_by), make.run(thread)
    await add_runs(any_store, holder, second)

    def claim(tx: Transaction) -> str:
        try:
            tx.runs.transition(second, Signal.CLAIM)
        except StaleRun:
            # The transaction is still usable: the loser may go on reading.
            found = tx.runs.find(holder.id)
            return "lost" if found == holder else "confused"
        return "won"

    assert await any_store.write(claim) == "lost"
    with pytest.raises(StaleRun):
        await add_runs(any_store, make.run(thread, status=RunStatus.RUNNING))
    found = await any_store.read(lambda tx: tx.runs.find(second.id))
    assert found == second


async def test_of_many_claims_at_once_one_wins(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    runs = [make.run(thread) for _ in range(8)]
    await add_runs(any_store, *runs)
    outcomes = await asyncio.gather(
        *(signal(any_store, run, Signal.CLAIM) for run in runs), return_exceptions=True
    )
    assert sum(isinstance(outcome, Run) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, StaleRun) for outcome in outcomes) == 7


async def test_a_paused_run_is_either_answered_or_cancelled(any_store: Store, make: Make) -> None:
    paused = make.run(await add_thread(any_store, make), status=RunStatus.PAUSED)
    await add_runs(any_store, paused)
    outcomes = await asyncio.gather(
        signal(any_store, paused, Signal.ANSWER),
        signal(any_store, paused, Signal.CANCEL),
        return_exceptions=True,
    )
    assert sorted(isinstance(outcome, StaleRun) for outcome in outcomes) == [False, True]


async def test_only_a_queued_run_is_deleted_as_queued(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    queued, running = make.run(thread), make.run(thread, status=RunStatus.RUNNING)
    await add_runs(any_store, queued, running)
    assert await any_store.write(lambda tx: tx.runs.delete_if_waiting(queued.id))
    assert not await any_store.write(lambda tx: tx.runs.delete_if_waiting(queued.id))
    assert not await any_store.write(lambda tx: tx.runs.delete_if_waiting(running.id))
    assert await any_store.read(lambda tx: tx.runs.find(queued.id)) is None
    assert await any_store.read(lambda tx: tx.runs.find(running.id)) == running


async def test_deleting_a_run_keeps_its_messages(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    run = make.run(thread)
    step = make.step(run)
    row = make.message(thread, run_id=run.id)

    def work(tx: Transaction) -> None:
        tx.runs.add(run)
        tx.steps.add(step)
        tx.messages.append([row])
        tx.events.append([Event(run.id, 1, TextStreamed("message-1", "step-1", 0, "Hi"))])

    await any_store.write(work)
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.runs.delete("org-x", run.id))
    await any_store.write(lambda tx: tx.runs.delete(ORG, run.id))
    assert await any_store.read(lambda tx: tx.runs.find(run.id)) is None
    assert await any_store.read(lambda tx: tx.events.list_after(run.id, 0, 9)) == []
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.steps.get(ORG, step.id))
    assert (await any_store.read(lambda tx: tx.messages.get(ORG, row.id))).run_id == run.id


async def test_live_runs_come_oldest_first(any_store: Store, make: Make) -> None:
    threads = [await add_thread(any_store, make) for _ in range(3)]
    old = make.run(threads[0], status=RunStatus.CANCELLING)
    foreign = make.run(threads[1], organization_id="org-x", status=RunStatus.RUNNING)
    young = make.run(threads[2])
    over = [
        make.run(threads[2], status=status)
        for status in RunStatus
        if status not in ("queued", "running", "cancelling")
    ]
    await add_runs(any_store, young, *over, foreign, old)
    assert await any_store.read(lambda tx: tx.runs.list_live()) == [old, foreign, young]


async def test_the_paused_run_of_a_thread_is_found(any_store: Store, make: Make) -> None:
    thread, other = await add_thread(any_store, make), await add_thread(any_store, make)
    answered = make.run(thread, status=RunStatus.ANSWERED)
    paused = make.run(thread, status=RunStatus.PAUSED)
    await add_runs(any_store, answered, paused, make.run(thread), make.run(other))
    assert await any_store.read(lambda tx: tx.runs.find_paused(thread.id)) == paused
    assert await any_store.read(lambda tx: tx.runs.find_paused(other.id)) is None


async def test_steps_are_found_by_each_condition(any_store: Store, make: Make) -> None:
    run = make.run(await add_thread(any_store, make))
    other = make.run(await add_thread(any_store, make))
    one = make.step(run, tags=("a",), feedback="positive", project_id="p")
    two = make.step(
        other,
        model=ModelChoice(handle="anthropic/claude_x", context_window=1),
        status=StepStatus.SUCCESS,
        usage=Usage(1, 2),
        stop_reason=StopReason.END_TURN,
        failure=RunFailure("k", "m"),
        step_ns=5,
    )
    await add_runs(any_store, run, other)

    def add(tx: Transaction) -> None:
        tx.steps.add(one)
        tx.steps.add(two)

    await any_store.write(add)

    async def list_ids(**query: Any) -> list[Step]:
        asked = StepQuery(page=ALL, **query)
        return list(await any_store.read(lambda tx: tx.steps.list(ORG, asked)))

    assert await list_ids() == [one, two]
    assert await list_ids(agent_id=run.agent_id) == [one]
    assert await list_ids(run_id=other.id) == [two]
    assert await list_ids(model="anthropic/claude_x") == [two]
    assert await list_ids(model="claude_x") == [two]
    assert await list_ids(model="claude%x") == []
    assert await list_ids(start_date=two.created_at) == [two]
    assert await list_ids(end_date=one.created_at) == [one]
    assert await list_ids(feedback="positive") == [one]
    assert await list_ids(has_feedback=True) == [one]
    assert await list_ids(has_feedback=False) == [two]
    assert await list_ids(tags=("a", "b")) == [one]
    assert await list_ids(project_id="p") == [one]
    assert await any_store.read(lambda tx: tx.steps.list_pending(run.id)) == [one]
    assert await any_store.read(lambda tx: tx.steps.list_pending(other.id)) == []
    assert await any_store.read(lambda tx: tx.steps.get(ORG, two.id)) == two
    with pytest.raises(NotFound, match=f"Step with ID {one.id} not found"):
        await any_store.read(lambda tx: tx.steps.get("org-x", one.id))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.steps.save(make.step(run)))


async def test_a_step_with_feedback_is_found_by_its_new_tags(any_store: Store, make: Make) -> None:
    run = make.run(await add_thread(any_store, make))
    step = make.step(run, tags=("old",))
    await add_runs(any_store, run)
    await any_store.write(lambda tx: tx.steps.add(step))
    changed_step = await any_store.write(
        lambda tx: tx.steps.set_feedback(ORG, step.id, "positive", ("new",))
    )

    async def count(tag: str) -> int:
        query = StepQuery(page=ALL, tags=(tag,))
        return len(await any_store.read(lambda tx: tx.steps.list(ORG, query)))

    assert changed_step == change(step, feedback="positive", tags=("new",))
    assert (await count("old"), await count("new")) == (0, 1)
    with pytest.raises(NotFound, match=f"Step with ID {step.id} not found"):
        await any_store.write(lambda tx: tx.steps.set_feedback("org-x", step.id, None, ()))


async def test_saving_a_step_keeps_its_feedback(any_store: Store, make: Make) -> None:
    """And feedback changes nothing else, even if it was given on a stale step."""
    run = make.run(await add_thread(any_store, make))
    begun = make.step(run)
    ended = change(begun, status=StepStatus.SUCCESS, usage=Usage(1, 2))
    await add_runs(any_store, run)
    await any_store.write(lambda tx: tx.steps.add(begun))
    await any_store.write(lambda tx: tx.steps.set_feedback(ORG, begun.id, "negative", ("b", "a")))
    await any_store.write(lambda tx: tx.steps.set_transaction_id(ORG, begun.id, "t-1"))
    await any_store.write(lambda tx: tx.steps.save(ended))

    expected = change(ended, feedback="negative", tags=("b", "a"), transaction_id="t-1")
    assert await any_store.read(lambda tx: tx.steps.get(ORG, begun.id)) == expected
    tagged = StepQuery(page=ALL, tags=("a",))
    assert await any_store.read(lambda tx: tx.steps.list(ORG, tagged)) == [expected]
    changed_step = await any_store.write(
        lambda tx: tx.steps.set_feedback(ORG, begun.id, None, None)
    )
    assert changed_step == change(expected, feedback=None)


async def test_only_answers_count_as_unpriced(any_store: Store, make: Make) -> None:
    run = make.run(await add_thread(any_store, make))
    steps = [
        make.step(run, status=StepStatus.SUCCESS, cost=7),
        make.step(run, status=StepStatus.SUCCESS),
        make.step(run, status=StepStatus.FAILED),
        make.step(run, status=StepStatus.CANCELLED, cost=2),
        make.step(run),
    ]
    await add_runs(any_store, run)

    def add(tx: Transaction) -> None:
        for step in steps:
            tx.steps.add(step)

    await any_store.write(add)
    query = StepQuery(page=ALL, agent_id=run.agent_id)
    costs = await any_store.read(lambda tx: tx.steps.sum_costs(ORG, query))
    assert costs == Costs(cost=9, steps=5, unpriced=1)


async def test_events_come_back_in_order_with_their_rows(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    run, other = make.run(thread), make.run(thread)
    await add_runs(any_store, run, other)
    end = RunEnded(
        RunStatus.FAILED, StopReason.ERROR, Usage(1), 2, 3, RunFailure("k", "m", "detail")
    )

    def work(tx: Transaction) -> list[Event]:
        (row,) = tx.messages.append([make.message(thread, run_id=run.id)])
        events = [
            Event(run.id, 1, TextStreamed("message-1", "step-1", 0, "Hi")),
            Event(run.id, 2, MessageStored(row)),
            Event(run.id, 3, ToolProgressed("some-uuid", "call-1", "count", 0.5, None, "half\0")),
            Event(run.id, 4, end),
        ]
        tx.events.append(events[1:])
        tx.events.append(events[:1])
        tx.events.append([Event(other.id, 1, TextStreamed("message-1", "step-1", 0, "Hi"))])
        tx.events.append([])
        return events

    events = await any_store.write(work)
    assert await any_store.read(lambda tx: tx.events.list_after(run.id, 0, 9)) == events
    assert await any_store.read(lambda tx: tx.events.list_after(run.id, 1, 1)) == events[1:2]
    assert await any_store.read(lambda tx: tx.events.list_after(run.id, 4, 9)) == []
    # The message is stored once: the event shows its current content.
    stored = events[1].fact
    assert isinstance(stored, MessageStored)
    changed = change(stored.message, content=(Text("rewritten"),))
    await any_store.write(lambda tx: tx.messages.rewrite(changed))
    (event,) = await any_store.read(lambda tx: tx.events.list_after(run.id, 1, 1))
    assert event.fact == MessageStored(changed)


async def test_an_update_of_a_locked_run_overwrites_nothing_that_its_worker_wrote(
    any_store: Store, make: Make
) -> None:
    """A cancellation reads a run and writes it back; a number that is reserved in between must not be lost."""
    agent = make.agent()
    thread = make.thread(agent)
    run = make.run(thread, status=RunStatus.RUNNING)

    def fill(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(thread)
        tx.runs.add(run)

    await any_store.write(fill)
    locked, go_on = threading.Event(), threading.Event()

    def cancel(tx: Transaction) -> None:
        seen = tx.runs.get_for_update(ORG, run.id)
        locked.set()
        assert go_on.wait(WAIT_SECONDS)
        tx.runs.transition(seen, Signal.CANCEL)

    cancelling = asyncio.create_task(any_store.write(cancel))
    await asyncio.to_thread(locked.wait, WAIT_SECONDS)
    reserving = asyncio.create_task(any_store.write(lambda tx: tx.runs.reserve_seq(run, 500)))
    # With several writers it may get further.
    await asyncio.wait([reserving], timeout=0.2)
    go_on.set()
    await asyncio.gather(cancelling, reserving)
    stored = await any_store.read(lambda tx: tx.runs.get(ORG, run.id))
    assert (stored.status, stored.reserved_seq) == (RunStatus.CANCELLING, 500)


def literal(query: Select[Any]) -> str:
    return str(query.compile(compile_kwargs={"literal_binds": True}))


async def test_finding_live_runs_does_not_read_all_runs(store: SqlStore, make: Make) -> None:
    """The worker looks for cancels twice a second, however large the store is."""

    def plans() -> list[str]:
        with store._reader.connect() as connection:
            return [
                str(connection.execute(text(f"EXPLAIN QUERY PLAN {literal(query)}")).all())
                for query in (runs._select_cancelling, runs._select_run.where(run_list.IS_LIVE))
            ]

    assert all("ix_runs_live" in plan for plan in await asyncio.to_thread(plans))
