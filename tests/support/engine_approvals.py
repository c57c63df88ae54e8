"""Held calls in the engine suites: agents that pause, decisions, and what must hold afterwards."""

import asyncio
from collections import Counter

from tests.doubles.model import call_answer
from tests.support.history import assert_calls_answered
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.messages import Decision, Outcome, Role, Text, ToolReturn
from holdfast.core.runs import ClientTool, Run, RunRequest, StopReason
from holdfast.usecases import messages
from holdfast.usecases.approval_answers import AnswerOptions
from holdfast.usecases.messages import ApprovalInput, Input, MessageInput, NewSend, Reply

ASK = rules.RequiresApproval(tool_name="ask")


LOOK = ClientTool("look")


def allow(call_id: str) -> Decision:
    return Decision(call_id, approve=True)


def deny(call_id: str) -> Decision:
    return Decision(call_id, approve=False, reason="no")


def client_result(call_id: str) -> Decision:
    result = ToolReturn(call_id, None, Outcome.FINISHED, (Text("mine"),))
    return Decision(call_id, approve=False, returned=result)


async def submit(
    rig: Rig, agent: Agent, *decisions: Decision, more: str = "", partial: bool = False
) -> Run:
    items: list[Input] = [
        ApprovalInput(decisions=decisions, options=AnswerOptions(partial=partial))
    ]
    if more:
        items.append(MessageInput(role=Role.USER, content=(Text(more),)))
    request = RunRequest(client_tools=(LOOK,))
    new = NewSend(agent_id=agent.id, input=tuple(items), request=request)
    return await messages.send(rig.services, ACTOR, new)


async def answer(rig: Rig, agent: Agent, *decisions: Decision, more: str = "") -> Reply:
    run = await submit(rig, agent, *decisions, more=more)
    return await asyncio.wait_for(messages.wait(rig.services, run), WAIT_SECONDS)


async def make_agent(rig: Rig) -> Agent:
    return await rig.make_agent("ask", "roll", rules=(ASK,))


async def pause(rig: Rig, agent: Agent, *calls: tuple[str, str]) -> Reply:
    rig.model.script = [call_answer(*calls)]
    reply = await rig.say(agent, client_tools=(LOOK,))
    assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
    return reply


async def assert_not_stuck(rig: Rig, agent: Agent) -> None:
    """The next message is answered, and the history is one that a provider takes."""
    rig.model.script = []
    assert (await rig.say(agent)).ended.stop_reason is StopReason.END_TURN
    assert_calls_answered(await rig.context(agent))
    assert await rig.read(lambda tx: tx.calls.list_open(agent.id)) == []
    assert set(Counter(rig.toolbox.started).values()) <= {1}
