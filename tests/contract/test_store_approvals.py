"""Which requests wait for a person, across all threads."""

from typing import Any

import pytest
from tests.contract.test_store_runs import add_thread
from tests.values import Make

from holdfast.core.approvals import ApprovalQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.messages import CallState, Message, OpenCall, Role, ToolCall
from holdfast.core.paging import Order, Page
from holdfast.core.runs import RunStatus
from holdfast.errors import NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ALL = Page(limit=50, order=Order.ASC)


async def ask(
    store: Store,
    make: Make,
    *tools: str,
    state: CallState = CallState.HELD,
    status: RunStatus = RunStatus.PAUSED,
) -> Message:
    """A request for these tools, in a thread of its own."""
    thread = await add_thread(store, make)
    run = make.run(thread, status=status)
    # Words that look like a call must not be taken for one.
    text = '{"name":"other","arguments":1}'
    calls = tuple(ToolCall(f"c{number}", tool, text) for number, tool in enumerate(tools))
    row = make.message(thread, "", role=Role.APPROVAL, tool_calls=calls, run_id=run.id)
    open_calls = [OpenCall(call, row.id, "step-1", state) for call in calls]

    def work(tx: Transaction) -> Message:
        tx.runs.add(run)
        (stored,) = tx.messages.append([row])
        tx.calls.put(thread.id, open_calls)
        return stored

    return await store.write(work)


async def waiting(store: Store, page: Page = ALL, **query: Any) -> tuple[list[str], int]:
    wanted = ApprovalQuery(page=page, **query)

    def load(tx: Transaction) -> tuple[list[str], int]:
        rows = tx.calls.requests(ORG, wanted)
        return [row.id for row in rows], tx.calls.count_requests(ORG, wanted)

    return await store.read(load)


async def test_requests_are_listed_by_age_and_counted(any_store: Store, make: Make) -> None:
    first, second, third = [await ask(any_store, make, "shout", "ask") for _ in range(3)]
    assert await waiting(any_store) == ([first.id, second.id, third.id], 3)
    assert await waiting(any_store, Page(limit=1)) == ([third.id], 3)
    after = Page(limit=1, order=Order.ASC, after=first.id)
    assert await waiting(any_store, after) == ([second.id], 3)
    before = Page(limit=1, order=Order.ASC, before=third.id)
    assert await waiting(any_store, before) == ([second.id], 3)
    with pytest.raises(NotFound):
        await waiting(any_store, Page(limit=1, after="message-0"))
    assert (await any_store.read(lambda tx: tx.calls.requests(ORG, ApprovalQuery(page=ALL))))[
        0
    ] == first


async def test_they_are_found_by_agent_thread_and_tool(any_store: Store, make: Make) -> None:
    one = await ask(any_store, make, "shout", "ask")
    two = await ask(any_store, make, "ask")
    assert await waiting(any_store, agent_id=one.agent_id) == ([one.id], 1)
    assert await waiting(any_store, thread_id=two.thread_id) == ([two.id], 1)
    assert await waiting(any_store, tool="ask") == ([one.id, two.id], 2)
    assert await waiting(any_store, tool="shout") == ([one.id], 1)
    for nothing in ("other", "sh", "%", "s_out", '"'):
        assert await waiting(any_store, tool=nothing) == ([], 0)


async def test_what_does_not_wait_for_a_person_is_not_listed(any_store: Store, make: Make) -> None:
    await ask(any_store, make, "ask", state=CallState.STARTED)
    await ask(any_store, make, "ask", status=RunStatus.ANSWERED)
    done = await ask(any_store, make, "ask")
    await any_store.write(lambda tx: tx.calls.close(done.thread_id))
    assert await waiting(any_store) == ([], 0)
    assert (
        await any_store.read(lambda tx: tx.calls.requests("org-other", ApprovalQuery(page=ALL)))
        == []
    )
