"""Tool calls that wait for a person, who decides in an MCP client."""

from typing import Any

import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.mcp_client import (
    call,
    call_for_value,
    connect_mcp,
    fail,
    read,
    run_id_of,
    text_of,
)
from tests.support.server_process import ServerProcess
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import pause
from tests.support.wire_server import MakeAgent, MakeTool

from holdfast.testing import Answer, ScriptedProvider, ToolCall

pytestmark = pytest.mark.slow

SHOUTING = ToolCall("shout", {"text": "hi"}, id="call_shout")
WHISPERING = ToolCall("whisper", {"text": "PSST"}, id="call_whisper")
LOOK: Any = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}


@pytest.fixture
def agent(make_agent: MakeAgent, make_tool: MakeTool) -> AgentState:
    tools = [make_tool(source, default_requires_approval=True).id for source in (SHOUT, WHISPER)]
    return make_agent(tool_ids=tools, parallel_tool_calls=True)


async def test_a_run_that_waits_for_a_person_says_for_what_and_how_to_decide(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer("May I?", SHOUTING), "I shouted.")
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Shout"}
        result = await client.call_tool("send_message", sent)
        (waiting,) = (await call_for_value(client, "list_approvals", agent=agent.id))["approvals"]
        shown = await read(client, f"holdfast://approvals/{waiting['id']}")
        run = await read(client, f"holdfast://runs/{run_id_of(result)}")
        refused = await fail(client, "send_message", **sent)
        answer = await call(client, "decide_approval", approval_id=waiting["id"], approve=True)
        decided = await read(client, f"holdfast://approvals/{waiting['id']}")

    assert not result.is_error
    assert text_of(result) == (
        "May I?\n\n"
        f"The run {run_id_of(result)} waits for a person's decision on these tool calls:\n"
        '- shout with {"text":"hi"} (id call_shout)\n'
        f"To go on, call decide_approval with approval_id {waiting['id']} and approve true or false."
    )
    assert waiting["run_id"] == run_id_of(result)
    assert waiting == shown == run["approval"]
    assert run["status"] == "paused"
    assert (
        f"Waiting: shout (call_shout). Call decide_approval with approval_id {waiting['id']}."
        in refused
    )
    assert answer == "I shouted."
    assert decided["status"] == "decided"
    assert "call_shout was approved by user-" in decided["calls"][0]["decision"]


async def test_a_call_is_denied_with_a_reason_that_the_agent_reads(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(SHOUTING), "Then not.")
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Shout"}
        run_id = run_id_of(await client.call_tool("send_message", sent))
        # The run that waits names its request as well.
        answer = await call(
            client, "decide_approval", approval_id=run_id, approve=False, reason="It is night."
        )

    assert answer == "Then not."
    assert "It is night." in str(provider.requests[-1].messages)


async def test_some_calls_of_a_request_are_decided_and_the_others_wait(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(SHOUTING, WHISPERING), "Done.")
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Both"}
        await client.call_tool("send_message", sent)
        (waiting,) = (await call_for_value(client, "list_approvals", agent=agent.id))["approvals"]
        request = waiting["id"]
        partial = await call(
            client, "decide_approval", approval_id=request, approve=True, calls=["call_shout"]
        )
        answer = await call(client, "decide_approval", approval_id=request, approve=False)

    assert "shout with" in partial
    assert "call_shout was approved by user-" in partial
    assert '- whisper with {"text":"PSST"} (id call_whisper)\n' in partial
    assert answer == "Done."


async def test_an_agent_cannot_deny_a_call_by_cancelling_the_run_that_waits(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    """Not even by naming the run that was answered in part, before the one that waits now."""
    provider.script(Answer(SHOUTING, WHISPERING), "Done.")
    async with (
        connect_mcp(server.address, generation) as person,
        connect_mcp(server.address, generation, {"X-Agent-Id": agent.id}) as other,
    ):
        sent = {"agent": agent.id, "message": "Shout"}
        first = run_id_of(await person.call_tool("send_message", sent))
        at_first = await fail(other, "cancel_run", run_id=first)
        decision = {"approval_id": first, "approve": True, "calls": ["call_shout"]}
        second = run_id_of(await person.call_tool("decide_approval", decision))
        refused = [await fail(other, "cancel_run", run_id=run_id) for run_id in (first, second)]
        (waiting,) = (await call_for_value(person, "list_approvals", agent=agent.id))["approvals"]
        cancelled = await call(person, "cancel_run", run_id=second)

    for run_id, text in ((first, at_first), (second, refused[0]), (second, refused[1])):
        assert text == (
            f"The run {run_id} has tool calls that are for a person to decide. Cancelling it would deny them, which an "
            "agent cannot do."
        )
    assert waiting["run_id"] == second
    assert "The run was cancelled" in cancelled


async def test_a_decision_that_comes_too_late_is_an_error_that_says_who_was_first(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(SHOUTING), "Done.")
    async with connect_mcp(server.address, generation) as client:
        sent = {"agent": agent.id, "message": "Shout"}
        run_id = run_id_of(await client.call_tool("send_message", sent))
        request = (await read(client, f"holdfast://runs/{run_id}"))["approval"]["id"]
        await call(client, "decide_approval", approval_id=request, approve=True)
        late = await fail(client, "decide_approval", approval_id=request, approve=False)
        wrong = await fail(client, "decide_approval", approval_id="message-1", approve=True)

    assert "call_shout was approved by user-" in late
    assert wrong == "Approval with ID message-1 not found"


async def test_the_call_of_a_tool_of_another_client_can_only_be_denied_here(
    server: ServerProcess,
    generation: str,
    letta: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
) -> None:
    looking = ToolCall("look", {}, id="call_look")
    request = pause(letta, provider, agent.id, looking, client_tools=[LOOK])[-1]["id"]
    provider.script("I cannot see.")
    async with connect_mcp(server.address, generation) as client:
        (run,) = (await call_for_value(client, "list_runs", agent=agent.id))["runs"]
        told = await call(client, "get_run", run_id=run["id"])
        refused = await fail(client, "decide_approval", approval_id=request, approve=True)
        denied = await call(client, "decide_approval", approval_id=request, approve=False)

    assert "The client that offered these tools must send their results by the API." in told
    assert "look (call_look)" in refused
    assert denied == "I cannot see."


async def test_the_inbox_has_what_waits_for_all_agents(
    server: ServerProcess, generation: str, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(SHOUTING))
    async with connect_mcp(server.address, generation) as client:
        await client.call_tool("send_message", {"agent": agent.id, "message": "Shout"})
        inbox = await read(client, "holdfast://approvals")
        listed = {item.uri for item in (await client.list_resources()).resources}

    (waiting,) = [item for item in inbox["approvals"] if item["agent_id"] == agent.id]
    assert inbox["count"] >= 1
    assert waiting["calls"] == [{"id": "call_shout", "tool": "shout", "arguments": '{"text":"hi"}'}]
    assert f"holdfast://approvals/{waiting['id']}" in listed
