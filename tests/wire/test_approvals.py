"""A held call: the pause, and what is refused meanwhile (wire-v1 §6.1-§6.3, §6.9)."""

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIError, APIStatusError, BadRequestError, ConflictError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, eventually, history
from tests.support.stream_items import (
    IGNORE_DEPRECATION,
    assert_ended,
    kinds_in_turn,
    message_keys,
    read,
)
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import (
    CALL,
    allow,
    answer,
    approval_message,
    assert_context_works,
    client_result,
    deny,
    pause,
    thinking_answer,
)

from holdfast.testing import Answer, ScriptedProvider, Thinking, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

WORDS = "Please approve or deny the pending request before continuing"


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    held = make_tool(SHOUT, default_requires_approval=True)
    return make_agent(tool_ids=[held.id, make_tool(WHISPER).id], parallel_tool_calls=True)


@pytest.fixture
def request_message(client: Letta, provider: ScriptedProvider, agent: AgentState) -> dict[str, Any]:
    """An agent whose model calls a tool that needs an approval."""
    return pause(client, provider, agent.id)[-1]


@pytest.mark.wire(63, 64, 65, 66, 67, 68, 69, 142, 143)
def test_a_held_call_pauses_the_run(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    request_message: dict[str, Any],
) -> None:
    assert history(client, agent.id)[-1] == request_message
    assert request_message["tool_call"] == request_message["tool_calls"][0]
    assert len(request_message["tool_calls"]) == 1
    assert request_message["tool_call"]["name"] == "shout"
    assert json.loads(request_message["tool_call"]["arguments"]) == {"text": "hi"}
    assert request_message["otid"] == request_message["id"]
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("completed", "requires_approval")
    paused = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert as_dict(paused)["pending_approval"] == request_message
    assert paused.message_ids is not None
    assert paused.message_ids[-1] == request_message["id"]
    assert_context_works(http, agent.id)
    provider.script(thinking_answer("Done."))
    answer(client, agent.id, allow())
    after = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert after.pending_approval is None


@pytest.mark.wire(66, 79, 143)
def test_a_person_is_never_asked_about_heartbeats(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    call = ToolCall("shout", {"text": "hi", "request_heartbeat": True}, id="call_held")

    (*_, request) = pause(client, provider, agent.id, call)

    assert json.loads(request["tool_call"]["arguments"]) == {"text": "hi"}
    assert history(client, agent.id)[-1]["tool_calls"] == request["tool_calls"]
    provider.script("Done.")
    assert answer(client, agent.id, allow())[0]["tool_return"] == "HI!"


@pytest.mark.wire(111, 112, 113)
def test_why_the_agent_stopped_last_is_always_known(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    assert client.agents.retrieve(agent.id).last_stop_reason is None
    pause(client, provider, agent.id)
    assert client.agents.retrieve(agent.id).last_stop_reason == "requires_approval"
    provider.script("Done.", "Yes?")
    answer(client, agent.id, allow())
    assert client.agents.retrieve(agent.id).last_stop_reason == "end_turn"
    client.agents.messages.create(agent.id, input="Hello?")
    assert client.agents.retrieve(agent.id).last_stop_reason == "end_turn"


@pytest.mark.wire(70, 71, 72, 75, 76)
def test_a_pause_that_was_streamed_can_be_answered_by_its_first_chunk(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(Thinking("May I?"), CALL), thinking_answer("Done."))
    items = as_dicts(client.agents.messages.stream(agent.id, input="Go on", stream_tokens=True))
    assert kinds_in_turn(items)[-3:] == [
        "approval_request_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "requires_approval")
    assert_context_works(http, agent.id)
    first = next(item for item in items if item["message_type"] == "approval_request_message")

    decision = allow(first["tool_call"]["tool_call_id"])
    after = as_dicts(
        client.agents.messages.stream(
            agent.id, messages=[approval_message(decision)], stream_tokens=True
        )
    )

    assert (after[0]["message_type"], after[0]["status"]) == ("tool_return_message", "success")
    assert after[0]["tool_call_id"] == CALL.id
    assert_ended(after, "end_turn")
    told = message_keys([*items, *after])
    stored = message_keys(history(client, agent.id))
    assert told == [
        row for row in stored if row[0] not in {"user_message", "approval_response_message"}
    ]


@pytest.mark.wire(73)
def test_a_tool_that_is_held_no_longer_runs_at_once(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    client.agents.tools.update_approval("shout", agent_id=agent.id, body_requires_approval=False)
    provider.script(Answer(Thinking("Now."), CALL), thinking_answer("Done."))

    items = as_dicts(client.agents.messages.stream(agent.id, input="Go on", stream_tokens=True))

    assert kinds_in_turn(items) == [
        "reasoning_message",
        "tool_call_message",
        "tool_return_message",
        "reasoning_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]


def test_whether_a_tool_is_held_is_a_rule_of_the_agent(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    client.agents.tools.update_approval("shout", agent_id=agent.id, body_requires_approval=True)
    rules = as_dicts(client.agents.retrieve(agent.id).tool_rules or [])
    assert [(rule["type"], rule["tool_name"]) for rule in rules] == [("requires_approval", "shout")]


@pytest.mark.wire(59, 60)
def test_a_plain_message_meanwhile_is_refused_for_good_and_makes_no_run(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    request_message: dict[str, Any],
) -> None:
    before = history(client, agent.id)

    with pytest.raises(ConflictError, match=WORDS) as caught:
        client.agents.messages.create(agent.id, input="Well?")

    detail = caught.value.response.json()["detail"]
    assert detail["code"] == "PENDING_APPROVAL"
    assert detail["message"].startswith("CONFLICT: Cannot send a new message: The agent is waiting")
    assert detail["pending_request_id"] == request_message["id"]
    assert detail["pending_calls"] == [{"tool_call_id": CALL.id, "name": "shout"}]
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(client.runs.list(agent_id=agent.id).items) == 1
    assert history(client, agent.id) == before
    # The error contains the request that unblocks.
    provider.script("Done.")
    helped = http.post(f"/v1/agents/{agent.id}/messages", json=detail["unblock"])
    assert helped.json()["messages"][0]["tool_return"] == "HI!"


@pytest.mark.wire(59)
def test_it_is_refused_in_every_manner_in_which_it_may_be_sent(
    client: Letta, http: httpx.Client, agent: AgentState, request_message: dict[str, Any]
) -> None:
    with pytest.raises(APIStatusError, match=WORDS):
        as_dicts(client.agents.messages.stream(agent.id, input="Well?"))
    stop, error = read(http, f"/v1/agents/{agent.id}/messages/stream", input="Well?")
    assert stop["stop_reason"] == "error"
    assert f"/v1/approvals/{request_message['id']}" in error["detail"]
    plain = http.post(
        "/v1/conversations/default/messages",
        json={"agent_id": agent.id, "input": "Well?", "streaming": False},
    )
    assert plain.status_code == 409
    assert WORDS in plain.json()["detail"]
    assert CALL.id is not None
    assert CALL.id in plain.json()["detail"]
    assert len(client.runs.list(agent_id=agent.id).items) == 1
    run = client.agents.messages.create_async(agent.id, input="Well?")
    ended = eventually(
        lambda: client.runs.retrieve(run.id), lambda seen: seen.completed_at is not None
    )
    assert (ended.status, ended.stop_reason) == ("failed", "error")
    assert WORDS in str(ended.metadata)
    paused = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert paused.pending_approval is not None


def test_another_thread_of_the_agent_does_not_wait(
    client: Letta, provider: ScriptedProvider, agent: AgentState, request_message: dict[str, Any]
) -> None:
    conversation = client.conversations.create(agent_id=agent.id)
    provider.script("Hello.")

    items = as_dicts(client.conversations.messages.create(conversation.id, input="Hello?"))

    assert_ended(items, "end_turn")


@pytest.mark.wire(61, 62)
@pytest.mark.parametrize(
    "entries",
    [
        [allow("nope")],
        [allow(), allow("nope")],
        [client_result("nope")],
        [allow(), deny()],
    ],
)
def test_an_answer_for_other_calls_is_refused_and_changes_nothing(
    client: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
    request_message: dict[str, Any],
    entries: list[dict[str, Any]],
) -> None:
    before = history(client, agent.id)

    with pytest.raises(BadRequestError, match="Invalid tool call IDs") as caught:
        answer(client, agent.id, *entries)

    # V1's sentence is unchanged, also as the client shows it.
    assert "Invalid tool call IDs. Expected '['call_held']', but received '['" in str(caught.value)
    problem = caught.value.response.json()
    assert "Waiting: shout (call_held)." in problem["detail"]
    assert problem["unblock"] == {"messages": [approval_message(allow())]}
    assert history(client, agent.id) == before
    assert len(client.runs.list(agent_id=agent.id).items) == 1
    provider.script("Done.")
    assert answer(client, agent.id, allow())[-1]["content"] == "Done."


def test_an_answer_that_says_nothing_is_refused(
    client: Letta, agent: AgentState, request_message: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError, match="does not contain any approvals"):
        answer(client, agent.id)

    assert len(client.runs.list(agent_id=agent.id).items) == 1


@pytest.mark.wire(58)
def test_an_answer_with_nothing_pending_is_refused(client: Letta, agent: AgentState) -> None:
    with pytest.raises(APIError, match="No tool call is currently awaiting approval"):
        answer(client, agent.id, allow())
    with pytest.raises(APIError, match="No tool call is currently awaiting approval"):
        as_dicts(client.agents.messages.stream(agent.id, messages=[approval_message(allow())]))

    assert client.runs.list(agent_id=agent.id).items == []
