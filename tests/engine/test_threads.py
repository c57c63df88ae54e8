"""Threads of one agent do not know each other: each has its turn, its pause and its model (wire-v1 §7.11)."""

import asyncio
from typing import Any

import pytest
from tests.doubles.model import call_answer, text_answer
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.messages import Decision, Message, Role, Text
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunQuery, RunStatus, StopReason
from holdfast.core.threads import Thread
from holdfast.errors import NotFound, PendingApproval
from holdfast.usecases import conversations, messages
from holdfast.usecases.conversations import NewConversation
from holdfast.usecases.messages import ApprovalInput, MessageInput, NewSend, Reply

HELD = (rules.RequiresApproval(tool_name="roll"),)


async def create_conversation(rig: Rig, agent: Agent, **wishes: Any) -> Thread:
    view = await conversations.create(rig.services, ACTOR, agent.id, NewConversation(**wishes))
    return view.thread


async def send(rig: Rig, thread: Thread, text: str = "Hi", **fields: Any) -> Run:
    item = MessageInput(role=Role.USER, content=(Text(text),), otid=fields.pop("otid", None))
    new = NewSend(agent_id=thread.agent_id, thread_id=thread.id, input=(item,), **fields)
    return await messages.send(rig.services, ACTOR, new)


async def wait_for_reply(rig: Rig, run: Run) -> Reply:
    return await asyncio.wait_for(messages.wait(rig.services, run), WAIT_SECONDS)


async def context_texts(rig: Rig, thread: Thread) -> list[str]:
    rows = await rig.read(lambda tx: tx.messages.context(thread.id))
    return [row.text for row in rows[1:]]


async def test_threads_run_at_once_and_each_keeps_its_order(rig: Rig) -> None:
    agent = await rig.make_agent()
    one, two = await create_conversation(rig, agent), await create_conversation(rig, agent)
    rig.model.gate = asyncio.Event()
    rig.model.otherwise = lambda question: text_answer(f"To {question.history[-1].text}")
    async with rig.run_worker():
        sent = [await send(rig, thread, f"{n}") for n in (1, 2) for thread in (one, two)]
        # Both are asked although neither has an answer: they do not wait for each other.
        while len(rig.model.questions) < 2:
            rig.model.asked.clear()
            await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        assert {asked.history[-1].thread_id for asked in rig.model.questions} == {one.id, two.id}
        rig.model.gate.set()
        for run in sent:
            await wait_for_reply(rig, run)
    for thread in (one, two):
        assert await context_texts(rig, thread) == ["1", "To 1", "2", "To 2"]
    assert [row.role for row in await rig.context(agent)] == [Role.SYSTEM]


async def test_a_pause_in_one_thread_does_not_block_another(rig: Rig) -> None:
    agent = await rig.make_agent("roll", rules=HELD)
    paused, free = await create_conversation(rig, agent), await create_conversation(rig, agent)
    rig.model.script = [call_answer(("c1", "roll")), call_answer(("c1", "roll"))]
    async with rig.run_worker():
        for thread in (paused, free):
            reply = await wait_for_reply(rig, await send(rig, thread))
            assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
        with pytest.raises(PendingApproval):
            await send(rig, paused)
        # The same call id waits in both: the answer is for one of them alone.
        yes = ApprovalInput(decisions=(Decision("c1", approve=True),))
        new = NewSend(agent_id=agent.id, thread_id=free.id, input=(yes,))
        answered = await wait_for_reply(rig, await messages.send(rig.services, ACTOR, new))
        assert answered.ended.stop_reason is StopReason.END_TURN
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN
        assert_calls_answered(await rig.read(lambda tx: tx.messages.context(free.id)))
        with pytest.raises(PendingApproval):
            await send(rig, paused)
    assert rig.toolbox.started == ["c1"]


async def test_a_fork_of_a_paused_thread_is_free_and_leaves_the_pause_alone(rig: Rig) -> None:
    agent = await rig.make_agent("roll", rules=HELD)
    thread = await create_conversation(rig, agent)
    rig.model.script = [text_answer("Yes?"), call_answer(("c1", "roll"))]
    async with rig.run_worker():
        await wait_for_reply(rig, await send(rig, thread, "One"))
        await wait_for_reply(rig, await send(rig, thread, "Two"))
        view = await conversations.fork(
            rig.services, ACTOR, thread.id, message_id=None, hidden=False
        )
        reply = await wait_for_reply(rig, await send(rig, view.thread, "Three"))
        assert reply.ended.stop_reason is StopReason.END_TURN
        assert await context_texts(rig, view.thread) == ["One", "Yes?", "Two", "Three", "Hello"]
        with pytest.raises(PendingApproval):
            await send(rig, thread)


async def test_a_conversation_asks_its_own_model(rig: Rig) -> None:
    agent = await rig.make_agent()
    thread = await create_conversation(rig, agent, context_window_limit=5_000)
    async with rig.run_worker():
        await wait_for_reply(rig, await send(rig, thread))
        await rig.say(agent)
    own, agents = (question.choice for question in rig.model.questions)
    assert own.context_window == 5_000
    assert agents == agent.model


async def test_a_repeated_request_gets_the_run_that_it_started(rig: Rig) -> None:
    agent = await rig.make_agent()
    thread = await create_conversation(rig, agent)
    wishes: dict[str, Any] = {"background": True, "request_key": "key", "otid": "mine"}
    async with rig.run_worker():
        sent = await asyncio.gather(*(send(rig, thread, **wishes) for _ in range(5)))
        assert len({run.id for run in sent}) == 1
        assert (await rig.wait_for_end(sent[0])).status is RunStatus.COMPLETED
        # Even when it is long over.
        again = await send(rig, thread, **wishes)
        assert (again.id, again.status) == (sent[0].id, RunStatus.COMPLETED)
        other = await send(rig, thread, **wishes | {"request_key": "other"})
        assert other.id != again.id
        await rig.wait_for_end(other)
    assert len(rig.model.questions) == 2


async def test_a_repeated_answer_to_a_held_call_gets_its_run_too(rig: Rig) -> None:
    agent = await rig.make_agent("roll", rules=HELD)
    thread = await create_conversation(rig, agent)
    rig.model.script = [call_answer(("c1", "roll"))]
    yes = ApprovalInput(decisions=(Decision("c1", approve=True),), otid="mine")
    new = NewSend(
        agent_id=agent.id, thread_id=thread.id, input=(yes,), background=True, request_key="key"
    )
    async with rig.run_worker():
        await wait_for_reply(rig, await send(rig, thread))
        first = await messages.send(rig.services, ACTOR, new)
        await rig.wait_for_end(first)
        assert (await messages.send(rig.services, ACTOR, new)).id == first.id


async def test_deleting_a_conversation_stops_what_runs_in_it(rig: Rig) -> None:
    agent = await rig.make_agent()
    thread = await create_conversation(rig, agent)
    rig.model.gate = asyncio.Event()
    async with rig.run_worker():
        run = await send(rig, thread)
        waiting = asyncio.create_task(wait_for_reply(rig, run))
        await asyncio.wait_for(rig.model.asked.wait(), WAIT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS):
            await conversations.delete(rig.services, ACTOR, thread.id)
            assert (await waiting).ended.stop_reason is StopReason.CANCELLED
        with pytest.raises(NotFound):
            await send(rig, thread)
        rig.model.gate.set()
        assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN
    query = RunQuery(page=Page(limit=9), thread_id=thread.id)
    assert await rig.read(lambda tx: tx.runs.list(ACTOR.organization_id, query)) == []
    rows: list[Message] = await rig.context(agent)
    assert [row.text for row in rows[1:]] == ["Hi", "Hello"]
