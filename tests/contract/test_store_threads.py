"""Conversations in the store: listing, deleting, sharing messages, one run per request."""

import asyncio
from typing import Any

import pytest
from tests.support.values import Make, ident, moment

from holdfast.core.agents import Agent
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.messages import CallState, Message, OpenCall, ToolCall
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Run, RunStatus
from holdfast.core.threads import Thread, ThreadQuery
from holdfast.errors import NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ASC, DESC = Order.ASC, Order.DESC


async def add_agent(store: Store, make: Make) -> Agent:
    """An agent with its default thread."""
    agent = make.agent()

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(make.thread(agent))

    await store.write(work)
    return agent


async def add(store: Store, make: Make, agent: Agent, number: int, **fields: Any) -> Thread:
    """A conversation; a higher number means a later creation."""
    at = moment(number)
    values = {"id": ident("conv", number), "created_at": at, "updated_at": at} | fields
    thread = make.thread(agent, **values)
    await store.write(lambda tx: tx.threads.add(thread))
    return thread


async def append_messages(store: Store, make: Make, thread: Thread, count: int) -> list[Message]:
    rows = [make.message(thread) for _ in range(count)]
    return list(await store.write(lambda tx: tx.messages.append(rows)))


async def fork(
    store: Store, make: Make, source: Thread, number: int, rows: list[Message]
) -> Thread:
    """A conversation of the same agent that shares these messages."""
    thread = await add(store, make, make.agent(id=source.agent_id), number)
    ids = [row.id for row in rows]

    def work(tx: Transaction) -> None:
        tx.messages.share(source.id, thread.id, ids)
        tx.messages.set_context(thread.id, ids)

    await store.write(work)
    return thread


async def list_history(store: Store, thread: Thread) -> list[str]:
    page = Page(limit=99, order=ASC)
    rows = await store.read(lambda tx: tx.messages.list(ORG, page, thread_id=thread.id))
    return [row.id for row in rows]


async def delete(store: Store, thread: Thread) -> None:
    await store.write(lambda tx: tx.threads.delete(ORG, thread.id, moment(500)))


async def test_a_list_shows_conversations_and_nothing_else(any_store: Store, make: Make) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    one = await add(any_store, make, agent, 1, summary="About Über-trains")
    two = await add(any_store, make, agent, 2, archived_at=moment(9), summary="100% sure")
    await add(any_store, make, agent, 3, hidden=True)
    four = await add(any_store, make, other, 4, hidden=False)

    async def list_ids(organization_id: str = ORG, **wanted: Any) -> list[Thread]:
        query = ThreadQuery(page=Page(limit=9), **wanted)
        return list(await any_store.read(lambda tx: tx.threads.list(organization_id, query)))

    assert await list_ids() == [four, two, one]
    assert await list_ids("org-x") == []
    assert await list_ids(agent_id=agent.id) == [two, one]
    assert await list_ids(archived=True) == [two]
    assert await list_ids(archived=False) == [four, one]
    assert await list_ids(summary_search="über") == [one]
    assert await list_ids(summary_search="100%") == [two]
    assert await list_ids(summary_search="1_0") == []


@pytest.mark.parametrize("order", [ASC, DESC])
@pytest.mark.parametrize("order_by", ["created_at", "last_message_at", "last_run_completion"])
async def test_a_list_is_paged_in_each_order_and_ends_with_rows_without_a_value(
    any_store: Store, make: Make, order: Order, order_by: str
) -> None:
    agent = await add_agent(any_store, make)
    at = {1: 30, 2: None, 3: 10, 4: None, 5: 20}
    for number, seconds in at.items():
        moment_of = None if seconds is None else moment(seconds)
        thread = await add(any_store, make, agent, number, last_message_at=moment_of)
        for completed_at in (moment_of, moment(1) if moment_of else None):
            run = make.run(thread, completed_at=completed_at)
            await any_store.write(lambda tx, run=run: tx.runs.add(run))  # type: ignore[misc]  # bound here
    numbers = [3, 5, 1] if order is ASC else [1, 5, 3]
    numbers += [2, 4] if order is ASC else [4, 2]
    if order_by == "created_at":
        numbers = sorted(at, reverse=order is DESC)
    expected = [ident("conv", number) for number in numbers]

    async def page(**cursors: str) -> list[str]:
        wanted = Page(limit=2, order=order, order_by=order_by, **cursors)
        query = ThreadQuery(page=wanted)
        return [row.id for row in await any_store.read(lambda tx: tx.threads.list(ORG, query))]

    seen = await page()
    while more := await page(after=seen[-1]):
        seen += more
    assert seen == expected
    assert await page(before=expected[3]) == expected[1:3]
    with pytest.raises(NotFound, match="No Conversation found with id conv-x"):
        await page(after="conv-x")


async def test_a_conversation_is_deleted_with_everything_in_it(
    any_store: Store, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    doomed, spared = [await add(any_store, make, agent, number) for number in (1, 2)]
    (row, *_) = await append_messages(any_store, make, doomed, 3)
    (shared,) = await append_messages(any_store, make, spared, 1)
    run = make.run(doomed)
    call = OpenCall(ToolCall("call_1", "f", "{}"), row.id, "step-1", CallState.HELD)

    def work(tx: Transaction) -> None:
        tx.runs.add(run)
        tx.calls.put(doomed.id, [call])

    await any_store.write(work)
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.threads.delete("org-x", doomed.id, moment(500)))
    await delete(any_store, doomed)
    for load in (
        lambda tx: tx.threads.get(ORG, doomed.id),
        lambda tx: tx.messages.get(ORG, row.id),
        lambda tx: tx.runs.get(ORG, run.id),
    ):
        with pytest.raises(NotFound):
            await any_store.read(load)
    with pytest.raises(NotFound, match=f"Conversation with ID {doomed.id} not found"):
        await delete(any_store, doomed)
    assert await any_store.read(lambda tx: tx.calls.list_open(doomed.id)) == []
    assert await list_history(any_store, doomed) == []
    assert await list_history(any_store, spared) == [shared.id]
    assert await any_store.read(lambda tx: tx.messages.count(agent.id)) == 1


async def test_the_default_thread_cannot_be_deleted_alone(any_store: Store, make: Make) -> None:
    agent = await add_agent(any_store, make)
    with pytest.raises(NotFound):
        await delete(any_store, make.thread(agent))
    assert await any_store.read(lambda tx: len(tx.threads.list_of_agent(agent.id))) == 1


async def test_a_fork_has_shared_rows_in_its_history_whatever_its_context_shows(
    any_store: Store, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    source = await add(any_store, make, agent, 1)
    rows = await append_messages(any_store, make, source, 3)
    forked = await fork(any_store, make, source, 2, rows[:2])
    (own,) = await append_messages(any_store, make, forked, 1)
    assert await list_history(any_store, forked) == [rows[0].id, rows[1].id, own.id]
    assert await list_history(any_store, source) == [row.id for row in rows]
    await any_store.write(lambda tx: tx.messages.set_context(forked.id, [own.id]))
    assert await list_history(any_store, forked) == [rows[0].id, rows[1].id, own.id]


async def test_shared_messages_stay_until_the_last_fork_is_deleted(
    any_store: Store, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    source = await add(any_store, make, agent, 1)
    rows = await append_messages(any_store, make, source, 3)
    first = await fork(any_store, make, source, 2, rows[:2])
    second = await fork(any_store, make, first, 3, rows[:1])
    await delete(any_store, source)
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.threads.get(ORG, source.id))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.threads.save(source))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.threads.record_request(source.id, moment(1)))
    with pytest.raises(NotFound):
        await fork(any_store, make, source, 4, rows[:1])
    assert await any_store.read(lambda tx: tx.messages.count(agent.id)) == 2
    context = await any_store.read(lambda tx: tx.messages.context(first.id))
    assert list(context) == rows[:2]
    await delete(any_store, first)
    assert await list_history(any_store, second) == [rows[0].id]
    assert await any_store.read(lambda tx: tx.messages.count(agent.id)) == 1
    await delete(any_store, second)
    assert await any_store.read(lambda tx: tx.messages.count(agent.id)) == 0


async def test_an_agent_is_deleted_with_its_forks(any_store: Store, make: Make) -> None:
    agent = await add_agent(any_store, make)
    source = await add(any_store, make, agent, 1)
    rows = await append_messages(any_store, make, source, 2)
    await fork(any_store, make, source, 2, rows)
    await delete(any_store, source)
    await any_store.write(lambda tx: tx.agents.delete(ORG, agent.id))
    assert await any_store.read(lambda tx: tx.messages.list(ORG, Page(limit=9))) == []


async def test_a_long_history_is_deleted_in_parts(any_store: Store, make: Make) -> None:
    agent, other = await add_agent(any_store, make), await add_agent(any_store, make)
    thread, source = make.thread(agent), await add(any_store, make, agent, 1)
    rows = await append_messages(any_store, make, thread, 7)
    shared = await append_messages(any_store, make, source, 1)
    await fork(any_store, make, source, 2, shared)
    foreign = await append_messages(any_store, make, make.thread(other), 1)
    over = make.run(thread, status=RunStatus.COMPLETED)
    live = make.run(thread)

    def fill(tx: Transaction) -> None:
        tx.messages.set_context(thread.id, [rows[0].id])
        tx.messages.set_context(source.id, [])
        tx.messages.set_context(other.id, [])
        tx.runs.add(over)
        tx.runs.add(live)

    await any_store.write(fill)

    async def delete_history(organization_id: str, thread_id: str | None) -> bool:
        return await any_store.write(
            lambda tx: tx.threads.delete_history(organization_id, agent.id, thread_id, 3)
        )

    assert not await delete_history("org-x", None)
    assert not await delete_history(ORG, source.id)
    assert [await delete_history(ORG, None) for _ in range(3)] == [True, True, False]
    assert await list_history(any_store, thread) == [rows[0].id]
    assert await list_history(any_store, source) == [shared[0].id]
    assert await list_history(any_store, make.thread(other)) == [foreign[0].id]
    assert await any_store.read(lambda tx: tx.runs.get(ORG, live.id)) == live
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.runs.get(ORG, over.id))


async def test_recording_a_request_changes_nothing_else(any_store: Store, make: Make) -> None:
    agent = await add_agent(any_store, make)
    thread = await add(any_store, make, agent, 1, summary="s")
    await any_store.write(lambda tx: tx.threads.record_request(thread.id, moment(77)))
    found = await any_store.read(lambda tx: tx.threads.get(ORG, thread.id))
    assert (found.last_message_at, found.summary) == (moment(77), "s")


async def test_a_request_that_is_sent_twice_at_once_starts_one_run(
    any_store: Store, make: Make
) -> None:
    agent = await add_agent(any_store, make)
    thread, other = make.thread(agent), await add(any_store, make, agent, 1)
    twins = [make.run(thread, request_key="key") for _ in range(8)]

    def start(tx: Transaction, run: Run) -> Run:
        found = tx.runs.find_by_request_key(thread.id, "key")
        if found is None:
            tx.runs.add(run)
        return found or run

    started = await asyncio.gather(
        *(any_store.write(lambda tx, run=run: start(tx, run)) for run in twins)  # type: ignore[misc]  # bound here
    )
    assert len({run.id for run in started}) == 1
    assert started[0].request_key == "key"
    # In another thread, or without a key, there may be any number of runs.
    for run in (make.run(other, request_key="key"), make.run(thread), make.run(thread)):
        await any_store.write(lambda tx, run=run: tx.runs.add(run))  # type: ignore[misc]  # bound here
    assert await any_store.read(lambda tx: tx.runs.find_by_request_key(thread.id, "none")) is None


async def test_a_run_is_found_by_the_otid_of_its_input(any_store: Store, make: Make) -> None:
    agent = await add_agent(any_store, make)
    thread, other = make.thread(agent), await add(any_store, make, agent, 1)
    rows = [
        make.message(thread, "mine", otid='50%"x'),
        make.message(thread, otid="mine"),
        make.message(thread, otid="mine"),
        make.message(other, otid="other"),
    ]
    threads = [thread, thread, thread, other]
    runs = [make.run(home, input=(row,)) for home, row in zip(threads, rows, strict=True)]
    for run in runs:
        await any_store.write(lambda tx, run=run: tx.runs.add(run))  # type: ignore[misc]  # bound here

    async def find_run(otid: str) -> Run | None:
        return await any_store.read(lambda tx: tx.runs.find_by_otid(thread.id, otid))

    assert await find_run("mine") == runs[2]
    assert await find_run('50%"x') == runs[0]
    for unknown in ("other", "min", "MINE", ""):
        assert await find_run(unknown) is None
