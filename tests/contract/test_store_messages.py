"""Threads: their history, their context, and their open calls."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from tests.support.values import Make, moment

from holdfast.core.agents import Agent
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.message_search import SEARCHABLE_ROLES, MessageFilter
from holdfast.core.messages import (
    CallState,
    Decision,
    Image,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from holdfast.core.paging import Order, Page
from holdfast.core.threads import Thread
from holdfast.errors import NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
ASC, DESC = Order.ASC, Order.DESC


async def add_thread(store: Store, make: Make, agent: Agent | None = None) -> Thread:
    """A conversation of the agent, or the default thread of a new one."""
    if agent is None:
        owner = make.agent()
        thread = make.thread(owner)
    else:
        owner, thread = agent, make.thread(agent, id=make.message(make.thread(agent)).id)

    def work(tx: Transaction) -> None:
        if agent is None:
            tx.agents.add(owner)
        tx.threads.add(thread)

    await store.write(work)
    return thread


async def append(store: Store, *messages: Message) -> Sequence[Message]:
    return await store.write(lambda tx: tx.messages.append(messages))


async def test_a_row_comes_back_with_all_its_parts(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    result = ToolReturn("call_1", "f", Outcome.FAILED, (Text("no"),), stderr=("oops\x00",))
    row = make.message(
        thread,
        role=Role.ASSISTANT,
        content=(
            Thinking("hm", signature="sig", details={"k": [1]}),
            Text('say "hi"\n', id="msg_1"),
            Image("image/png", "aGk="),
        ),
        tool_calls=(ToolCall("call_1", "f", '{"a": 1'),),
        tool_returns=(result,),
        decisions=(Decision("call_1", approve=False, reason="no"),),
        run_id="run-1",
        step_id="step-1",
        otid="o",
        name="n",
        hidden=True,
    )
    (stored,) = await append(any_store, row)
    assert stored == msgspec.structs.replace(row, position=stored.position)
    assert stored.position > 0
    assert await any_store.read(lambda tx: tx.messages.get(ORG, row.id)) == stored
    assert await any_store.read(lambda tx: tx.messages.context(thread.id)) == [stored]
    with pytest.raises(NotFound, match=f"Message with ID {row.id} not found"):
        await any_store.read(lambda tx: tx.messages.get("org-x", row.id))


async def test_positions_rise_over_all_threads(any_store: Store, make: Make) -> None:
    one, two = await add_thread(any_store, make), await add_thread(any_store, make)
    first = await append(any_store, make.message(one), make.message(two), make.message(one))
    second = await append(any_store, make.message(two))
    positions = [row.position for row in [*first, *second]]
    assert positions == sorted(set(positions))
    assert await append(any_store) == []


async def test_a_message_needs_its_thread(any_store: Store, make: Make) -> None:
    lost = make.message(make.thread(make.agent()))
    with pytest.raises(NotFound, match="Conversation with ID"):
        await append(any_store, lost)


async def test_a_row_replaces_neighbours_in_the_context(any_store: Store, make: Make) -> None:
    thread, other = await add_thread(any_store, make), await add_thread(any_store, make)
    system, *rows = await append(any_store, *(make.message(thread) for _ in range(5)))
    await append(any_store, make.message(other))
    summary = make.message(thread, role=Role.SUMMARY)

    async def context_ids() -> list[str]:
        found = await any_store.read(lambda tx: tx.messages.context(thread.id))
        return [row.id for row in found]

    stored = await any_store.write(
        lambda tx: tx.messages.replace_in_context(summary, [row.id for row in rows[:3]])
    )
    (new,) = await append(any_store, make.message(thread))
    assert stored == msgspec.structs.replace(summary, position=stored.position)
    assert rows[-1].position < stored.position < new.position
    assert await context_ids() == [system.id, summary.id, rows[3].id, new.id]
    page = Page(limit=10, order=Order.ASC)
    history = await any_store.read(lambda tx: tx.messages.list(ORG, page, thread_id=thread.id))
    assert [row.id for row in history] == [row.id for row in (system, *rows, stored, new)]
    # Again, with the summary itself among the evicted messages, and after a context that was set.
    await any_store.write(
        lambda tx: tx.messages.set_context(thread.id, [system.id, summary.id, rows[3].id])
    )
    again = make.message(thread, role=Role.SUMMARY)
    await any_store.write(
        lambda tx: tx.messages.replace_in_context(again, [summary.id, rows[3].id])
    )
    (last,) = await append(any_store, make.message(thread))
    assert await context_ids() == [system.id, again.id, last.id]
    assert len(await any_store.read(lambda tx: tx.messages.context(other.id))) == 1


async def test_a_row_replaces_only_the_neighbours_that_are_still_shown(
    any_store: Store, make: Make
) -> None:
    thread = await add_thread(any_store, make)
    system, *rows = await append(any_store, *(make.message(thread) for _ in range(5)))
    summary, lost = (make.message(thread, role=Role.SUMMARY) for _ in range(2))
    leaving = [row.id for row in rows[:3]]

    async def context_ids() -> list[str]:
        found = await any_store.read(lambda tx: tx.messages.context_ids([thread.id]))
        return list(found[thread.id])

    await any_store.write(lambda tx: tx.messages.hide(thread.id, [rows[0].id, rows[2].id]))
    assert await context_ids() == [system.id, rows[1].id, rows[3].id]
    await any_store.write(lambda tx: tx.messages.replace_in_context(summary, leaving))
    assert await context_ids() == [system.id, summary.id, rows[3].id]
    # No message is left that it could replace.
    stored = await any_store.write(lambda tx: tx.messages.replace_in_context(lost, leaving))
    assert await context_ids() == [system.id, summary.id, rows[3].id]
    assert await any_store.read(lambda tx: tx.messages.get(ORG, lost.id)) == stored
    # Hiding what is hidden already changes nothing.
    await any_store.write(lambda tx: tx.messages.hide(thread.id, leaving))
    assert await context_ids() == [system.id, summary.id, rows[3].id]


async def test_hiding_and_replacing_rows_at_the_same_time_do_not_undo_each_other(
    any_store: Store, make: Make
) -> None:
    thread = await add_thread(any_store, make)
    (system,) = await append(any_store, make.message(thread))
    for _ in range(6):
        rows = await append(any_store, *(make.message(thread) for _ in range(4)))
        ids = [row.id for row in rows]
        summary = make.message(thread, role=Role.SUMMARY)
        await asyncio.gather(
            any_store.write(lambda tx: tx.messages.replace_in_context(summary, ids[:3])),  # noqa: B023 - it is called before the next round - awaited here
            any_store.write(lambda tx: tx.messages.hide(thread.id, ids[1:])),  # noqa: B023 - it is called before the next round
        )
        shown = await any_store.read(lambda tx: tx.messages.context_ids([thread.id]))
        assert list(shown[thread.id]) == [system.id, summary.id]
        await any_store.write(lambda tx: tx.messages.hide(thread.id, [summary.id]))  # noqa: B023 - it is called before the next round


async def test_approval_messages_are_found_by_the_steps_that_asked(
    any_store: Store, make: Make
) -> None:
    one, two = await add_thread(any_store, make), await add_thread(any_store, make)

    def row(thread: Thread, step_id: str, role: Role = Role.APPROVAL) -> Message:
        return msgspec.structs.replace(make.message(thread, role=role), step_id=step_id)

    asked, _, answer, _, other = await append(
        any_store,
        row(one, "step-1"),
        row(one, "step-1", Role.ASSISTANT),
        row(one, "step-1"),
        row(one, "step-2"),
        row(two, "step-3"),
    )
    found = await any_store.read(
        lambda tx: tx.messages.list_approval_messages(["step-3", "step-1"])
    )
    assert list(found) == [asked, answer, other]
    assert await any_store.read(lambda tx: tx.messages.list_approval_messages([])) == []


async def test_the_context_shows_what_it_is_set_to(any_store: Store, make: Make) -> None:
    thread, other = await add_thread(any_store, make), await add_thread(any_store, make)
    system, *rows = await append(any_store, *(make.message(thread) for _ in range(5)))
    await append(any_store, make.message(other))
    chosen = [system.id, rows[3].id, rows[1].id]
    await any_store.write(lambda tx: tx.messages.set_context(thread.id, chosen))
    (new,) = await append(any_store, make.message(thread))
    context = await any_store.read(lambda tx: tx.messages.context(thread.id))
    assert [row.id for row in context] == [*chosen, new.id]
    ids = await any_store.read(lambda tx: tx.messages.context_ids([thread.id, "conv-none"]))
    assert ids == {thread.id: [*chosen, new.id], "conv-none": []}
    assert await any_store.read(lambda tx: tx.messages.count(thread.agent_id)) == 6
    await any_store.write(lambda tx: tx.messages.set_context(thread.id, []))
    assert await any_store.read(lambda tx: tx.messages.context(thread.id)) == []
    assert len(await any_store.read(lambda tx: tx.messages.context(other.id))) == 1
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.messages.set_context(thread.id, ["message-none"]))


async def test_two_contexts_may_show_the_same_row(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    fork = await add_thread(any_store, make, make.agent(id=thread.agent_id))
    (row,) = await append(any_store, make.message(thread))
    await any_store.write(lambda tx: tx.messages.set_context(fork.id, [row.id]))
    assert await any_store.read(lambda tx: tx.messages.context(thread.id)) == [row]
    assert await any_store.read(lambda tx: tx.messages.context(fork.id)) == [row]


async def test_rewriting_keeps_the_place_of_a_row(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    rows = await append(any_store, *(make.message(thread) for _ in range(2)))
    changed = msgspec.structs.replace(rows[0], content=(Text("recompiled"),))
    await any_store.write(lambda tx: tx.messages.rewrite(changed))
    assert await any_store.read(lambda tx: tx.messages.context(thread.id)) == [changed, rows[1]]
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.messages.rewrite(make.message(thread)))


async def test_a_page_of_the_history_starts_at_the_end_that_the_order_names(
    any_store: Store, make: Make
) -> None:
    thread = await add_thread(any_store, make)
    stored = await append(any_store, *(make.message(thread) for _ in range(6)))
    ids = [row.id for row in stored]

    async def page(**fields: object) -> list[str]:
        selected = msgspec.convert(fields, Page)
        rows = await any_store.read(
            lambda tx: tx.messages.list(ORG, selected, agent_id=thread.agent_id)
        )
        return [row.id for row in rows]

    assert await page(limit=2, order=ASC) == ids[:2]
    assert await page(limit=2, order=DESC) == [ids[5], ids[4]]
    assert await page(limit=2, order=ASC, after=ids[1]) == ids[2:4]
    assert await page(limit=2, order=DESC, after=ids[1]) == [ids[5], ids[4]]
    assert await page(limit=2, order=ASC, before=ids[4]) == ids[:2]
    assert await page(limit=2, order=DESC, before=ids[4]) == [ids[3], ids[2]]
    assert await page(limit=9, order=ASC, after=ids[0], before=ids[3]) == ids[1:3]
    for unknown in ({"after": "message-x"}, {"before": "message-x"}):
        with pytest.raises(NotFound, match="No Message found with id message-x"):
            await page(limit=2, **unknown)


async def test_the_history_is_listed_by_owner(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    conversation = await add_thread(any_store, make, make.agent(id=thread.agent_id))
    elsewhere = await add_thread(any_store, make)
    rows = [
        make.message(thread, run_id="run-1", step_id="step-1"),
        make.message(thread, run_id="run-1", step_id="step-2"),
        make.message(conversation, run_id="run-2"),
        make.message(elsewhere),
    ]
    await append(any_store, *rows)
    page = Page(limit=9, order=ASC)

    async def places(organization_id: str = ORG, **owner: str) -> list[int]:
        found = await any_store.read(lambda tx: tx.messages.list(organization_id, page, **owner))
        ids = [row.id for row in rows]
        return [ids.index(row.id) for row in found]

    assert await places() == [0, 1, 2, 3]
    assert await places("org-x") == []
    assert await places(agent_id=thread.agent_id) == [0, 1, 2]
    assert await places(thread_id=conversation.id) == [2]
    assert await places(run_id="run-1") == [0, 1]
    assert await places(step_id="step-2") == [1]
    assert await any_store.read(lambda tx: tx.messages.count(thread.agent_id)) == 3
    count = await any_store.read(lambda tx: tx.messages.count(thread.agent_id, conversation.id))
    assert count == 1


async def test_search_finds_the_words_of_messages(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    result = ToolReturn("call_1", "f", Outcome.FINISHED, (Text("sure"),))
    rows = [
        make.message(thread, 'He said "100% sure"'),
        make.message(thread, "a text about something else"),
        make.message(thread, role=Role.TOOL, content=(), tool_returns=(result,)),
        make.message(thread, "100% SURE", role=Role.ASSISTANT),
    ]
    await append(any_store, *rows)
    await append(any_store, make.message(await add_thread(any_store, make), "100% sure"))

    async def places(
        text: str, roles: Sequence[Role] = SEARCHABLE_ROLES, limit: int = 9
    ) -> list[int]:
        where = MessageFilter(agent_id=thread.agent_id, roles=tuple(roles))
        found = await any_store.read(lambda tx: tx.messages.search(ORG, where, text, limit))
        ids = [row.id for row in rows]
        return [ids.index(item.message.id) for item in found]

    assert await places("100% sure") == [3, 0]
    assert await places("100% sure", limit=1) == [3]
    assert await places("100% sure", limit=0) == []
    assert await places("100% sure", roles=[Role.USER]) == [0]
    assert await places('said "100') == [0, 3]
    assert await places("%") == [3, 0]
    assert await places("outcome") == []
    assert await places("texts") == [1]
    assert await places("") == [3, 1, 0]


async def test_search_can_be_limited_to_a_time(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    rows = [make.message(thread, "hello", created_at=moment(n)) for n in (1, 2, 3)]
    await append(any_store, *rows)

    async def search_ids(since: int | None, until: int | None) -> list[str]:
        where = MessageFilter(
            agent_id=thread.agent_id,
            since=None if since is None else moment(since),
            until=None if until is None else moment(until),
        )
        found = await any_store.read(lambda tx: tx.messages.search(ORG, where, "hello", 9))
        return [item.message.id for item in found]

    one, two, three = (row.id for row in rows)
    assert await search_ids(2, None) == [three, two]
    assert await search_ids(None, 2) == [two, one]
    assert await search_ids(2, 2) == [two]


async def test_threads_come_back_with_all_their_fields(any_store: Store, make: Make) -> None:
    agent = make.agent()
    default = make.thread(agent, summary="s", model="openai/gpt-x", archived_at=moment(3))
    early = make.thread(agent, id="conv-early", created_at=moment(0))
    late = make.thread(agent, id="conv-a-late", created_at=moment(90))

    def work(tx: Transaction) -> None:
        tx.agents.add(agent)
        for thread in (late, default, early):
            tx.threads.add(thread)

    await any_store.write(work)
    assert await any_store.read(lambda tx: tx.threads.get(ORG, agent.id)) == default
    found = await any_store.read(lambda tx: tx.threads.list_of_agent(agent.id))
    assert found == [default, early, late]
    changed = msgspec.structs.replace(late, summary="new", last_message_at=moment(9))
    await any_store.write(lambda tx: tx.threads.save(changed))
    assert await any_store.read(lambda tx: tx.threads.get(ORG, late.id)) == changed
    with pytest.raises(NotFound, match="Conversation with ID conv-early not found"):
        await any_store.read(lambda tx: tx.threads.get("org-x", early.id))
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.threads.save(make.thread(agent, id="conv-none")))


async def test_open_calls_keep_the_order_of_the_answer(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    calls = [
        OpenCall(ToolCall(id_, "f", "{}"), "message-1", "step-1", CallState.FRESH)
        for id_ in ("call_z", "call_a", "call_m")
    ]
    await any_store.write(lambda tx: tx.calls.put(thread.id, calls))
    assert await any_store.read(lambda tx: tx.calls.list_open(thread.id)) == calls
    result = ToolReturn("call_a", "f", Outcome.FINISHED, (Text("ok"),))
    settled = msgspec.structs.replace(calls[1], state=CallState.SETTLED, result=result)
    late = OpenCall(ToolCall("call_b", "g", "{}"), "message-1", "step-1", CallState.HELD)
    await any_store.write(lambda tx: tx.calls.put(thread.id, [late, settled]))
    found = await any_store.read(lambda tx: tx.calls.list_open(thread.id))
    assert found == [calls[0], settled, calls[2], late]
    assert await any_store.read(lambda tx: tx.calls.list_open("conv-none")) == []
    await any_store.write(lambda tx: tx.calls.close(thread.id))
    assert await any_store.read(lambda tx: tx.calls.list_open(thread.id)) == []


async def test_many_messages_keep_their_order(any_store: Store, make: Make) -> None:
    thread = await add_thread(any_store, make)
    rows = await append(any_store, *(make.message(thread, text=str(n)) for n in range(1_000)))
    positions = [row.position for row in rows]
    assert positions == sorted(set(positions))
    assert await any_store.read(lambda tx: tx.messages.context(thread.id)) == rows
    ids = [row.id for row in reversed(rows)]
    assert await any_store.read(lambda tx: tx.messages.find(ORG, ids)) == list(reversed(rows))
    with pytest.raises(NotFound, match="Message with ID message-none not found"):
        await any_store.read(lambda tx: tx.messages.find(ORG, [ids[0], "message-none"]))
    with pytest.raises(NotFound):
        await any_store.read(lambda tx: tx.messages.find("org-x", ids))


async def test_many_threads_are_read_at_once(any_store: Store, make: Make) -> None:
    one, other, empty = [await add_thread(any_store, make) for _ in range(3)]
    first = await append(any_store, *(make.message(one) for _ in range(3)))
    second = await append(any_store, *(make.message(other) for _ in range(2)))
    agent_ids = [one.agent_id, other.agent_id, empty.agent_id]
    heads = await any_store.read(lambda tx: tx.messages.context_heads(agent_ids))
    assert {row.id for row in heads} == {first[0].id, second[0].id}
    counts = await any_store.read(lambda tx: tx.messages.count_by_agent(agent_ids))
    assert counts == {one.agent_id: 3, other.agent_id: 2}
    threads = await any_store.read(lambda tx: tx.threads.list_of_agents(agent_ids[:2]))
    assert list(threads) == sorted([one, other], key=lambda thread: thread.id)
