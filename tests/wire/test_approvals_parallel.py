"""Several calls in one answer, some of them held (wire-v1 §6.2, §6.4)."""

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, history
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended, kinds_in_turn
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import (
    allow,
    answer,
    assert_context_works,
    client_result,
    deny,
    thinking_answer,
)

from holdfast.testing import Answer, ScriptedProvider, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

HELD = [
    ToolCall("shout", {"text": text}, id=call_id)
    for call_id, text in [("t1", "hello world"), ("t2", "hello letta"), ("t3", "hello test")]
]
FREE = ToolCall("whisper", {"text": "6"}, id="t4")
MIXED = [allow("t1"), deny("t2"), client_result("t3", tool_return="740")]


@pytest.fixture
def agent(client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    tools = [make_tool(SHOUT, default_requires_approval=True).id, make_tool(WHISPER).id]
    made = make_agent(tool_ids=tools, tool_rules=[], include_base_tool_rules=False)
    client.agents.update(made.id, parallel_tool_calls=True)
    return made


@pytest.fixture(params=[0, 2, 3], ids=["first", "between", "last"])
def paused(
    request: pytest.FixtureRequest, client: Letta, provider: ScriptedProvider, agent: AgentState
) -> list[dict[str, Any]]:
    """The reply to an answer with three held calls and one, at some position, that is not held."""
    calls = [*HELD]
    calls.insert(request.param, FREE)
    provider.script(Answer(Thinking("All of it."), Text("Shall I?"), *calls))
    reply = client.agents.messages.create(agent.id, input="Go on")
    assert as_dict(reply.stop_reason)["stop_reason"] == "requires_approval"
    return as_dicts(reply.messages)


@pytest.mark.wire(102, 103, 104)
def test_what_is_automatic_is_shown_before_what_is_held_and_waits_with_it(
    client: Letta, http: httpx.Client, agent: AgentState, paused: list[dict[str, Any]]
) -> None:
    automatic, held = paused[-2:]

    assert automatic["message_type"] == "tool_call_message"
    (free,) = automatic["tool_calls"]
    assert (free["name"], json.loads(free["arguments"])) == ("whisper", {"text": "6"})
    assert held["message_type"] == "approval_request_message"
    assert held["tool_call"] == held["tool_calls"][0]
    assert [call["tool_call_id"] for call in held["tool_calls"]] == ["t1", "t2", "t3"]
    assert automatic["step_id"] == held["step_id"]
    assert history(client, agent.id)[-2:] == [automatic, held]
    assert_context_works(http, agent.id)


@pytest.mark.wire(105, 106, 107, 108, 109, 110)
def test_a_mixed_answer_gives_every_call_its_own_result(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    paused: list[dict[str, Any]],
) -> None:
    provider.script(thinking_answer("I see."))

    result, *rest = answer(client, agent.id, *MIXED[::-1])

    assert result["message_type"] == "tool_return_message"
    returns = {entry["tool_call_id"]: entry for entry in result["tool_returns"]}
    # In the order of the model's calls, whatever the order of the answers.
    assert [key for key in returns if key != "t4"] == ["t1", "t2", "t3"]
    assert {key: (e["status"], e["tool_return"]) for key, e in returns.items()} == {
        "t1": ("success", "HELLO WORLD!"),
        "t2": ("error", "Error: request to call tool denied. User reason: None"),
        "t3": ("success", "740"),
        "t4": ("success", "6…"),
    }
    assert [row["message_type"] for row in rest] == ["reasoning_message", "assistant_message"]
    assert provider.requests[-1].refused is None
    assert_context_works(http, agent.id)
    assert [row["message_type"] for row in history(client, agent.id)] == [
        "user_message",
        "reasoning_message",
        "assistant_message",
        "tool_call_message",
        "approval_request_message",
        "approval_response_message",
        "tool_return_message",
        "reasoning_message",
        "assistant_message",
    ]
    provider.script(thinking_answer("Still here."))
    items = as_dicts(client.agents.messages.stream(agent.id, input="So?", stream_tokens=True))
    assert kinds_in_turn(items) == [
        "reasoning_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "end_turn")


@pytest.mark.wire(117)
def test_agent_and_tools_can_be_deleted_while_it_waits_and_made_again(
    client: Letta, make_tool: "MakeTool", agent: AgentState, paused: list[dict[str, Any]]
) -> None:
    tools = client.agents.tools.list(agent.id).items
    client.agents.delete(agent.id)
    for tool in tools:
        client.tools.delete(tool.id)
    for _ in range(2):
        assert make_tool(SHOUT, default_requires_approval=True).name == "shout"
