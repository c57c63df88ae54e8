"""A thought goes back to the one who thought it on every path of a run: after a tool, after an approval, after a
restart; and after a change of model it does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.catalogue import ProviderCatalogue
from holdfast.adapters.models.router import ModelRouter
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core import tool_rules as rules
from holdfast.core.agents import Agent
from holdfast.core.messages import Decision, Role, Text
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.runs import StopReason
from holdfast.testing import Answer, ScriptedProvider, Thinking, ToolCall
from holdfast.usecases import messages
from holdfast.usecases.messages import ApprovalInput, MessageInput, NewSend, Reply

HANDLES = ["openai/gpt-5", "anthropic/claude-haiku-4-5", "google_ai/gemini-3-pro-preview"]
SIGNATURE = "c2lnbmVk"
THOUGHT = Thinking("Let me see.", signature=SIGNATURE)


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider(default="Hello.", check_script=False) as running:
        yield running


@asynccontextmanager
async def run_process(store: SqliteStore, provider: ScriptedProvider) -> AsyncIterator[Rig]:
    """A process of its own: nothing but the store is left when it ends."""
    settings = ProviderSettings(
        {
            "openai": {"api_key": "k", "base_url": provider.openai_url},
            "anthropic": {"api_key": "k", "base_url": provider.url},
            "google_ai": {"api_key": "k", "base_url": provider.url},
        }
    )
    router = ModelRouter(settings)
    rig = Rig(store)
    rig.services = replace(rig.services, model=router, catalogue=ProviderCatalogue(settings))
    async with rig.run_worker():
        yield rig
    await router.aclose()


async def _agent(rig: Rig, handle: str) -> Agent:
    agent = await rig.make_agent("ask", "roll", rules=(rules.RequiresApproval(tool_name="ask"),))
    settings = ModelSettings(thinking=True, thinking_budget=2000, parallel_tool_calls=True)
    choice = ModelChoice(handle=handle, context_window=100_000, settings=settings)
    agent = changed(agent, model=choice)
    await rig.services.store.write(lambda tx: tx.agents.save(agent))
    return agent


async def _send(rig: Rig, new: NewSend) -> Reply:
    run = await messages.send(rig.services, ACTOR, new)
    return await asyncio.wait_for(messages.wait(rig.services, run), WAIT_SECONDS)


@pytest.mark.parametrize("handle", HANDLES)
async def test_after_a_tool(store: SqliteStore, provider: ScriptedProvider, handle: str) -> None:
    provider.script(Answer(THOUGHT, ToolCall("roll")), "Done.")
    async with run_process(store, provider) as rig:
        reply = await rig.say(await _agent(rig, handle))
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert SIGNATURE in str(provider.requests[1].body)
    assert [request.refused for request in provider.requests] == [None, None]


@pytest.mark.parametrize("handle", HANDLES)
async def test_after_a_restart_and_an_approval(
    store: SqliteStore, provider: ScriptedProvider, handle: str
) -> None:
    provider.script(Answer(THOUGHT, "May I?", ToolCall("roll"), ToolCall("ask")), "Done.")
    async with run_process(store, provider) as rig:
        agent = await _agent(rig, handle)
        reply = await rig.say(agent)
        assert reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL
        calls = [call for row in reply.messages for call in row.tool_calls if call.name == "ask"]
    async with run_process(store, provider) as rig:
        decisions = tuple(Decision(call.id, approve=True) for call in calls)
        reply = await _send(
            rig, NewSend(agent_id=agent.id, input=(ApprovalInput(decisions=decisions),))
        )
    assert reply.ended.stop_reason is StopReason.END_TURN
    assert SIGNATURE in str(provider.requests[1].body)
    assert provider.requests[1].refused is None


@pytest.mark.parametrize("handle", HANDLES)
async def test_in_the_next_turn_and_not_to_another_model(
    store: SqliteStore, provider: ScriptedProvider, handle: str
) -> None:
    provider.script(Answer(THOUGHT, "I think so."), "Mine.", "Again.")
    other = next(one for one in HANDLES if one != handle)
    async with run_process(store, provider) as rig:
        agent = await _agent(rig, handle)
        await rig.say(agent)
        item = MessageInput(role=Role.USER, content=(Text("And you?"),))
        await _send(rig, NewSend(agent_id=agent.id, input=(item,), override_model=other))
        await rig.say(agent)
    _, foreign, own = provider.requests
    assert [request.refused for request in provider.requests] == [None] * 3
    assert SIGNATURE not in str(foreign.body)
    assert "Let me see." not in str(foreign.body)
    assert SIGNATURE in str(own.body)
