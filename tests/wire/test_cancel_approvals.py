"""Cancelling a run that waits for a person (wire-v1 §6.7)."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, ConflictError, Letta
from tests.support.client_objects import as_dict, as_dicts, history, kinds
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended, read
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_checks import assert_answers, assert_cancelled

from holdfast.testing import Answer, ScriptedProvider, Thinking, ToolCall

if TYPE_CHECKING:
    from letta_client.types import AgentState
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

HELD = ToolCall("shout", {"text": "hi"}, id="call_held")
FREE = ToolCall("whisper", {"text": "psst"}, id="call_free")
REASON = "The user cancelled the request, so the tool call was denied."


@pytest.fixture
def agent(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool", model: str
) -> "AgentState":
    """The tool that needs an approval was attached after the agent was created."""
    made = make_agent(tool_ids=[make_tool(WHISPER).id], parallel_tool_calls=True)
    held = make_tool(SHOUT, default_requires_approval=True)
    client.agents.tools.attach(held.id, agent_id=made.id)
    return made


def pause(client: Letta, provider: ScriptedProvider, agent_id: str, *calls: ToolCall) -> str:
    provider.script(Answer(Thinking("May I?"), *calls))
    reply = client.agents.messages.create(agent_id, input="Go on")
    assert as_dict(reply.stop_reason)["stop_reason"] == "requires_approval"
    request = as_dicts(reply.messages)[-1]
    assert request["message_type"] == "approval_request_message"
    assert [call["name"] for call in request["tool_calls"]] == [HELD.name]
    return str(request["run_id"])


@pytest.fixture
def paused(client: Letta, provider: ScriptedProvider, agent: "AgentState") -> str:
    return pause(client, provider, agent.id, HELD)


def answer(client: Letta, agent_id: str) -> None:
    decision: Any = {"type": "approval", "approve": True, "tool_call_id": HELD.id}
    client.agents.messages.create(
        agent_id, messages=[{"type": "approval", "approvals": [decision]}]
    )


@pytest.mark.both_databases
@pytest.mark.wire(33, 34, 35, 37, 39, 40, 42, 43, 44, 45, 135)
def test_cancelling_a_pause_denies_the_call_and_lets_go_of_the_agent(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", paused: str
) -> None:
    request = history(client, agent.id)[-1]

    assert client.agents.messages.cancel(agent.id) == {paused: "cancelled"}

    response, results = history(client, agent.id)[-2:]
    assert response["message_type"] == "approval_response_message"
    assert (response["approve"], response["reason"]) == (False, REASON)
    (denied,) = response["approvals"]
    assert (denied["approve"], denied["tool_call_id"]) == (False, HELD.id)
    assert results["message_type"] == "tool_return_message"
    (result,) = results["tool_returns"]
    assert (result["tool_call_id"], result["status"]) == (HELD.id, "error")
    text = f"Error: request to call tool denied. User reason: {REASON}"
    assert result["tool_return"] == results["tool_return"] == text
    for row in (response, results):
        assert (row["run_id"], row["step_id"]) == (paused, request["step_id"])
    assert kinds(client.runs.messages.list(paused).items).count("tool_return_message") == 1
    assert_cancelled(client, paused)
    held = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert held.pending_approval is None
    assert client.agents.messages.cancel(agent.id, run_ids=[paused]) == {paused: "cancelled"}
    assert_cancelled(client, paused)
    assert len(history(client, agent.id)) == 5


@pytest.mark.wire(36, 38, 46, 47)
def test_after_it_the_agent_runs_other_tools_and_may_pause_again(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", paused: str
) -> None:
    client.agents.messages.cancel(agent.id)

    provider.script(Answer(FREE), "Done.")
    reply = client.agents.messages.create(agent.id, input="Whisper, then")

    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert len(client.runs.messages.list(as_dicts(reply.messages)[0]["run_id"]).items) == 4
    assert_answers(client, provider, agent.id)
    again = pause(client, provider, agent.id, HELD)
    assert client.agents.messages.cancel(agent.id) == {again: "cancelled"}
    assert_answers(client, provider, agent.id)


@pytest.mark.wire(41)
def test_until_then_a_plain_message_is_refused_in_every_manner(
    client: Letta, http: httpx.Client, agent: "AgentState", paused: str
) -> None:
    words = "Please approve or deny the pending request before continuing"

    with pytest.raises(ConflictError, match=words):
        client.agents.messages.create(agent.id, input="Well?")
    with pytest.raises(APIStatusError, match=words) as caught:
        as_dicts(client.agents.messages.stream(agent.id, input="Well?", stream_tokens=True))

    assert caught.value.status_code == 200
    stop, error = read(http, f"/v1/agents/{agent.id}/messages/stream", input="Well?")
    assert stop["stop_reason"] == "error"
    assert words in error["detail"]
    assert len(client.runs.list(agent_id=agent.id).items) == 1


@pytest.mark.both_databases
@pytest.mark.wire(135)
def test_a_call_that_waited_beside_the_held_one_is_denied_with_it(
    client: Letta, provider: ScriptedProvider, agent: "AgentState"
) -> None:
    run_id = pause(client, provider, agent.id, FREE, HELD)

    client.agents.messages.cancel(agent.id)

    response, results = history(client, agent.id)[-2:]
    assert [entry["tool_call_id"] for entry in response["approvals"]] == [HELD.id]
    returns = {entry["tool_call_id"]: entry for entry in results["tool_returns"]}
    assert returns.keys() == {HELD.id, FREE.id}
    assert all(REASON in entry["tool_return"] for entry in returns.values())
    assert {entry["status"] for entry in returns.values()} == {"error"}
    assert_cancelled(client, run_id)
    assert_answers(client, provider, agent.id)


def test_a_late_answer_finds_nothing_to_answer_and_the_pauses_stream_stays_as_it_was(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", paused: str
) -> None:
    client.agents.messages.cancel(agent.id)
    before = history(client, agent.id)

    with pytest.raises(BadRequestError, match="No tool call is currently awaiting approval"):
        answer(client, agent.id)

    assert history(client, agent.id) == before
    # For its readers the stream ended with the pause.
    assert_ended(as_dicts(client.runs.messages.stream(paused)), "requires_approval")


@pytest.mark.both_databases
@pytest.mark.wire(136)
def test_a_pause_that_the_agent_has_forgotten_leaves_nothing_to_deny(
    client: Letta, provider: ScriptedProvider, agent: "AgentState", paused: str
) -> None:
    client.agents.messages.reset(agent.id, add_default_initial_messages=False)
    before = history(client, agent.id)

    assert client.agents.messages.cancel(agent.id, run_ids=[paused]) == {paused: "cancelled"}

    assert history(client, agent.id) == before
    provider.script("Hello.")
    reply = client.agents.messages.create(agent.id, input="Hello?")
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
