"""The pending approval requests of all threads."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event
from tests.support.values import Make, add_thread

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.approvals import ApprovalQuery, OverdueRequest
from holdfast.core.deadlines import Deadline, OnTimeout
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.messages import CallState, Message, OpenCall, Role, ToolCall
from holdfast.core.paging import Order, Page
from holdfast.core.runs import RunStatus
from holdfast.errors import NotFound, StaleRun
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ALL = Page(limit=50, order=Order.ASC)
BY_DEADLINE = Page(limit=50, order=Order.ASC, order_by="expires_at")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deadline_in(seconds: float | None, number: int = 0) -> Deadline | None:
    if seconds is None:
        return None
    outcome = (OnTimeout.DENY, OnTimeout.APPROVE, OnTimeout.FAIL)[number % 3]
    return Deadline(NOW + timedelta(seconds=seconds + number), outcome)


async def ask(
    store: Store,
    make: Make,
    *tools: str,
    status: RunStatus = RunStatus.PAUSED,
    seconds: float | None = None,
) -> Message:
    """An approval request for calls of these tools, in its own thread; each deadline is one second later than the last."""
    thread = await add_thread(store, make)
    run = make.run(thread, status=status)
    # A text that looks like a call must not be taken for one.
    text = '{"name":"other","arguments":1}'
    calls = tuple(ToolCall(f"c{number}", tool, text) for number, tool in enumerate(tools))
    row = make.message(thread, "", role=Role.APPROVAL, tool_calls=calls, run_id=run.id)
    first = deadline_in(seconds)
    run = replace(
        run,
        approval_id=row.id,
        asked_at=row.created_at,
        expires_at=None if first is None else first.at,
    )
    open_calls = [
        OpenCall(call, row.id, "step-1", CallState.HELD, deadline=deadline_in(seconds, number))
        for number, call in enumerate(calls)
    ]

    def work(tx: Transaction) -> Message:
        tx.runs.add(run)
        (stored,) = tx.messages.append([row])
        tx.calls.put(thread.id, open_calls)
        return stored

    return await store.write(work)


async def list_waiting(store: Store, page: Page = ALL, **query: Any) -> tuple[list[str], int]:
    asked = ApprovalQuery(page=page, **query)

    def load(tx: Transaction) -> tuple[list[str], int]:
        rows = tx.calls.list_requests(ORG, asked)
        return [row.id for row in rows], tx.calls.count_requests(ORG, asked)

    return await store.read(load)


async def test_requests_are_listed_by_age_and_counted(any_store: Store, make: Make) -> None:
    first, second, third = [await ask(any_store, make, "shout", "ask") for _ in range(3)]
    assert await list_waiting(any_store) == ([first.id, second.id, third.id], 3)
    assert await list_waiting(any_store, Page(limit=1)) == ([third.id], 3)
    after = Page(limit=1, order=Order.ASC, after=first.id)
    assert await list_waiting(any_store, after) == ([second.id], 3)
    before = Page(limit=1, order=Order.ASC, before=third.id)
    assert await list_waiting(any_store, before) == ([second.id], 3)
    with pytest.raises(NotFound):
        await list_waiting(any_store, Page(limit=1, after="message-0"))
    assert (await any_store.read(lambda tx: tx.calls.list_requests(ORG, ApprovalQuery(page=ALL))))[
        0
    ] == first


async def test_requests_are_found_by_agent_thread_and_tool(any_store: Store, make: Make) -> None:
    one = await ask(any_store, make, "shout", "ask")
    two = await ask(any_store, make, "ask")
    assert await list_waiting(any_store, agent_id=one.agent_id) == ([one.id], 1)
    assert await list_waiting(any_store, thread_id=two.thread_id) == ([two.id], 1)
    assert await list_waiting(any_store, tool="ask") == ([one.id, two.id], 2)
    assert await list_waiting(any_store, tool="shout") == ([one.id], 1)
    for nothing in ("other", "sh", "%", "s_out", '"'):
        assert await list_waiting(any_store, tool=nothing) == ([], 0)


async def test_what_does_not_wait_for_a_person_is_not_listed(any_store: Store, make: Make) -> None:
    for status in RunStatus:
        if status is not RunStatus.PAUSED:
            await ask(any_store, make, "ask", status=status)
    assert await list_waiting(any_store) == ([], 0)
    assert (
        await any_store.read(
            lambda tx: tx.calls.list_requests("org-other", ApprovalQuery(page=ALL))
        )
        == []
    )


async def test_the_run_that_waits_is_found_by_its_thread(any_store: Store, make: Make) -> None:
    one, two = [await ask(any_store, make, "ask") for _ in range(2)]
    over = await ask(any_store, make, "ask", status=RunStatus.ANSWERED)
    threads = [one.thread_id, over.thread_id]
    found = await any_store.read(lambda tx: tx.runs.paused_run_ids(threads))
    assert found == {one.thread_id: one.run_id}
    paused = await any_store.read(lambda tx: tx.runs.find_paused(two.thread_id))
    assert paused is not None
    assert paused.id == two.run_id


async def test_the_most_urgent_may_come_first(any_store: Store, make: Make) -> None:
    never, late, soon = [
        await ask(any_store, make, "ask", "ask", seconds=wait) for wait in (None, 60, 5)
    ]
    assert await list_waiting(any_store, BY_DEADLINE) == ([soon.id, late.id, never.id], 3)
    after = replace(BY_DEADLINE, after=soon.id, limit=1)
    assert await list_waiting(any_store, after) == ([late.id], 3)
    first = replace(BY_DEADLINE, order=Order.DESC)
    assert await list_waiting(any_store, first) == ([late.id, soon.id, never.id], 3)


async def test_each_call_keeps_its_deadline_until_it_is_removed(
    any_store: Store, make: Make
) -> None:
    row = await ask(any_store, make, "ask", "ask", "ask", seconds=60)
    never = await ask(any_store, make, "ask")
    threads = [row.thread_id, never.thread_id]
    found = await any_store.read(lambda tx: tx.calls.deadlines(threads))
    assert found == {row.thread_id: {f"c{number}": deadline_in(60, number) for number in range(3)}}
    assert await any_store.read(lambda tx: tx.calls.deadlines([])) == {}

    def answer(tx: Transaction) -> None:
        first, *_ = tx.calls.list_open(row.thread_id)
        tx.calls.put(row.thread_id, [replace(first, deadline=None)])

    await any_store.write(answer)
    calls = await any_store.read(lambda tx: tx.calls.list_open(row.thread_id))
    assert [item.deadline for item in calls] == [None, deadline_in(60, 1), deadline_in(60, 2)]


async def test_overdue_requests_of_all_organisations_are_found(
    any_store: Store, make: Make
) -> None:
    late, later = [await ask(any_store, make, "ask", "ask", seconds=wait) for wait in (20, 10)]
    await ask(any_store, make, "ask", seconds=30)
    await ask(any_store, make, "ask")
    # An answer to other calls of it is just being stored.
    await ask(any_store, make, "ask", seconds=1, status=RunStatus.QUEUED)

    def look(tx: Transaction, seconds: float) -> tuple[list[OverdueRequest], datetime | None]:
        now = NOW + timedelta(seconds=seconds)
        return list(tx.calls.list_overdue(now)), tx.calls.next_deadline(now)

    async def overdue_after(seconds: float) -> tuple[list[OverdueRequest], datetime | None]:
        return await any_store.read(lambda tx: look(tx, seconds))

    assert await overdue_after(5) == ([], NOW + timedelta(seconds=10))
    assert await overdue_after(10) == ([OverdueRequest(ORG, later.id)], NOW + timedelta(seconds=20))
    assert await overdue_after(25) == (
        [OverdueRequest(ORG, later.id), OverdueRequest(ORG, late.id)],
        NOW + timedelta(seconds=30),
    )
    assert (await overdue_after(100))[1] is None


async def test_a_thread_waits_for_one_request_at_a_time(any_store: Store, make: Make) -> None:
    row = await ask(any_store, make, "ask")
    first = await any_store.read(lambda tx: tx.runs.find_paused(row.thread_id))
    assert first is not None
    second = replace(first, id="run-2")
    with pytest.raises(StaleRun):
        await any_store.write(lambda tx: tx.runs.add(second))


async def test_the_inbox_is_read_by_its_index(store: SqliteStore, make: Make) -> None:
    """Independent of the amount of data; tested on SQLite, whose planner behaves the same with few rows."""
    await ask(store, make, "ask", seconds=60)
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        asked.append((statement, parameters))

    event.listen(store._reader, "before_cursor_execute", note)
    queries: list[dict[str, Any]] = [{}, {"agent_id": "agent-1"}, {"tool": "ask"}]
    for query in queries:
        await list_waiting(store, **query)
    await list_waiting(store, BY_DEADLINE)
    event.remove(store._reader, "before_cursor_execute", note)
    of_runs = [item for item in asked if "FROM runs" in item[0]]
    assert len(of_runs) == 8
    with store._reader.connect() as connection:
        for statement, parameters in of_runs:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            (first, *_) = [row[-1] for row in plan]
            assert "SEARCH runs USING INDEX ix_runs_asked" in first.replace("COVERING ", ""), (
                statement
            )
