"""The result of an answer: approved, denied, or executed by the client (wire-v1 §6.3-§6.5)."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, history, message_texts
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended, kinds_in_turn
from tests.support.tool_sources import SHOUT
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
    user_message,
)

from holdfast.testing import Answer, HttpError, ScriptedProvider, Thinking

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

DENIAL = "Error: request to call tool denied. User reason: "
# Each answer, with the status and text that the model and the history get.
ANSWERS = {
    "approve": (allow(), "success", "HI!"),
    "deny": (deny(reason="the code is 4711"), "error", f"{DENIAL}the code is 4711"),
    "client": (client_result(tool_return="740", status="success"), "success", "740"),
}
ANY_ANSWER = pytest.mark.parametrize(
    ("entry", "status", "text"), ANSWERS.values(), ids=ANSWERS.keys()
)


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    return make_agent(tool_ids=[make_tool(SHOUT, default_requires_approval=True).id])


def follow_up(client: Letta, provider: ScriptedProvider, agent_id: str, *, tokens: bool) -> None:
    """The next message is answered like any other."""
    provider.script(thinking_answer("Still here."))
    items = as_dicts(client.agents.messages.stream(agent_id, input="So?", stream_tokens=tokens))
    assert kinds_in_turn(items) == [
        "reasoning_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "end_turn")
    assert provider.requests[-1].refused is None


@pytest.mark.wire(75, 76, 78, 80, 81, 82, 88, 89, 90, 91, 95, 96, 97, 98, 140, 141)
@ANY_ANSWER
@pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
def test_an_answer_is_executed_streamed_and_stored(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    entry: dict[str, Any],
    status: str,
    text: str,
    tokens: bool,
) -> None:
    (start,) = client.agents.messages.list(agent.id, limit=1).items
    thinking, request = pause(client, provider, agent.id)
    asked = as_dicts(client.agents.messages.list(agent.id, after=start.id).items)
    assert asked[0]["message_type"] == "user_message"
    assert asked[-1] == request
    assert thinking["id"] == request["id"]
    asked_so_far = len(provider.requests)

    provider.script(thinking_answer("I see."))
    items = as_dicts(
        client.agents.messages.stream(
            agent.id, messages=[approval_message(entry)], stream_tokens=tokens
        )
    )

    assert kinds_in_turn(items) == [
        "tool_return_message",
        "reasoning_message",
        "assistant_message",
        "stop_reason",
        "usage_statistics",
    ]
    assert_ended(items, "end_turn")
    result = items[0]
    assert (result["tool_call_id"], result["status"]) == (CALL.id, status)
    assert result["tool_return"] == text
    # The call is executed in the step that requested it, without a model call.
    assert result["step_id"] == request["step_id"]
    assert result["run_id"] != request["run_id"]
    assert len(provider.requests) == asked_so_far + 1
    assert text in str(provider.requests[-1].messages)
    response, stored, *rest = as_dicts(
        client.agents.messages.list(agent.id, after=thinking["id"]).items
    )
    assert response["message_type"] == "approval_response_message"
    (on_record,) = response["approvals"]
    assert entry.items() <= on_record.items()
    assert (response["step_id"], response["run_id"]) == (request["step_id"], result["run_id"])
    decides = entry["type"] == "approval"
    assert response["approval_request_id"] == (CALL.id if decides else None)
    assert response["approve"] == entry.get("approve")
    assert response["reason"] == entry.get("reason")
    assert (stored["id"], stored["status"], stored["tool_return"]) == (result["id"], status, text)
    assert [row["message_type"] for row in rest] == ["reasoning_message", "assistant_message"]
    assert_context_works(http, agent.id)


@pytest.mark.wire(84, 92, 99)
@ANY_ANSWER
def test_the_next_message_finds_nothing_unusual(
    client: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
    entry: dict[str, Any],
    status: str,
    text: str,
) -> None:
    pause(client, provider, agent.id)
    provider.script(thinking_answer("I see."))

    result, *_ = answer(client, agent.id, entry)

    assert (result["status"], result["tool_return"]) == (status, text)
    follow_up(client, provider, agent.id, tokens=True)


@pytest.mark.wire(85, 86, 93, 100)
@ANY_ANSWER
def test_a_provider_that_fails_after_it_leaves_the_agent_whole(
    client: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
    entry: dict[str, Any],
    status: str,
    text: str,
) -> None:
    pause(client, provider, agent.id)
    provider.respond_with(lambda _request: HttpError(400, "TEST: Mocked error"))

    with pytest.raises(APIError, match="TEST: Mocked error"):
        as_dicts(
            client.agents.messages.stream(
                agent.id, messages=[approval_message(entry)], stream_tokens=True
            )
        )

    provider.reset()
    result = history(client, agent.id)[-1]
    assert (result["message_type"], result["status"]) == ("tool_return_message", status)
    assert result["tool_return"] == text
    paused = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert paused.pending_approval is None
    follow_up(client, provider, agent.id, tokens=False)
    results = [
        row for row in history(client, agent.id) if row["message_type"] == result["message_type"]
    ]
    assert results == [result]


@pytest.mark.wire(87, 94, 101)
@pytest.mark.parametrize("max_steps", [1, 50])
@pytest.mark.parametrize("entry", [allow(), deny(), client_result()], ids=ANSWERS.keys())
def test_a_message_sent_with_an_answer_follows_the_result(
    client: Letta,
    provider: ScriptedProvider,
    agent: AgentState,
    entry: dict[str, Any],
    max_steps: int,
) -> None:
    pause(client, provider, agent.id)
    provider.script(thinking_answer("Both heard."))

    reply = client.agents.messages.create(
        agent.id,
        messages=[approval_message(entry), user_message("And hurry.")],
        max_steps=max_steps,
    )

    assert as_dicts(reply.messages)[-1]["content"] == "Both heard."
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert "And hurry." in provider.requests[-1].user_text
    assert message_texts(client, agent.id) == ["Go on", "And hurry.", "Both heard."]
    order = [row["message_type"] for row in history(client, agent.id)]
    assert order[3:6] == ["approval_response_message", "tool_return_message", "user_message"]
    follow_up(client, provider, agent.id, tokens=False)


def test_carrying_out_an_answer_is_a_step(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id)

    reply = client.agents.messages.create(
        agent.id, messages=[approval_message(allow())], max_steps=1
    )

    (result,) = as_dicts(reply.messages)
    assert result["tool_return"] == "HI!"
    assert as_dict(reply.stop_reason)["stop_reason"] == "max_steps"
    follow_up(client, provider, agent.id, tokens=False)


@pytest.mark.wire(83)
def test_a_model_that_only_thinks_after_it_leaves_a_context_that_works(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id)
    provider.script(Answer(Thinking("Hm.")))

    answer(client, agent.id, allow())

    assert_context_works(http, agent.id)
    follow_up(client, provider, agent.id, tokens=False)


def test_no_reason_is_told_as_none(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id)
    provider.script("I see.")

    assert answer(client, agent.id, deny())[0]["tool_return"] == f"{DENIAL}None"


@pytest.mark.parametrize("approve", [True, False])
def test_the_older_form_names_the_request(
    client: Letta, provider: ScriptedProvider, agent: AgentState, approve: bool
) -> None:
    *_, request = pause(client, provider, agent.id)
    provider.script("I see.")
    older: Any = {"type": "approval", "approve": approve, "approval_request_id": request["id"]}

    reply = client.agents.messages.create(agent.id, messages=[older])

    result = as_dicts(reply.messages)[0]
    assert (result["tool_call_id"], result["status"]) == (
        CALL.id,
        "success" if approve else "error",
    )


@pytest.mark.parametrize("entry", [allow, deny, client_result])
def test_with_one_call_its_request_may_be_named_instead(
    client: Letta, provider: ScriptedProvider, agent: AgentState, entry: Any
) -> None:
    *_, request = pause(client, provider, agent.id)
    provider.script("I see.")

    result, *_ = answer(client, agent.id, entry(request["id"]))

    assert result["tool_call_id"] == CALL.id
    follow_up(client, provider, agent.id, tokens=False)


def test_who_decided_and_when_is_on_record(
    http: httpx.Client, client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    user = "user-00000000-0000-4000-8000-000000000007"
    pause(client, provider, agent.id)
    provider.script("I see.")

    sent = http.post(
        f"/v1/agents/{agent.id}/messages",
        json={"messages": [approval_message(allow(decided_by="Ada, on call"))]},
        headers={"user_id": user},
    )

    assert sent.status_code == 200
    (response,) = [row for row in history(client, agent.id) if row.get("approvals")]
    (decision,) = response["approvals"]
    assert (decision["decided_by"], decision["decided_by_id"]) == ("Ada, on call", user)
    assert decision["decided_at"].startswith(str(response["date"].date()))
