"""Held calls with a deadline (wire-v1 §6.11). Not in V1."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import APIStatusError, ConflictError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import eventually, history
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import CALL, allow, answer, pause
from tests.support.wire_checks import assert_answers

from holdfast.core.deadlines import MAX_TIMEOUT_SECONDS
from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

# Long enough for the test's steps before it, short enough to wait for.
SOON = {"approval_timeout_seconds": 1}
LATER = {"approval_timeout_seconds": 3600}


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    tools = [make_tool(source, default_requires_approval=True).id for source in (SHOUT, WHISPER)]
    return make_agent(tool_ids=tools, parallel_tool_calls=True)


def rule(**fields: Any) -> dict[str, Any]:
    return {"type": "requires_approval", "tool_name": "shout"} | fields


def wait_until_decided(http: httpx.Client, request_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found: dict[str, Any] = http.get(f"/v1/approvals/{request_id}").json()
        return found

    return eventually(look, lambda seen: seen["status"] == "decided")


def wait_for_last_message(client: Letta, agent_id: str, kind: str) -> dict[str, Any]:
    found = eventually(
        lambda: history(client, agent_id), lambda seen: seen[-1]["message_type"] == kind
    )
    return found[-1]


def test_what_nobody_answers_is_denied_in_time_and_the_agent_goes_on(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    request = pause(client, provider, agent.id, extra_body=SOON)[-1]
    provider.script("Then not.")

    wait_for_last_message(client, agent.id, "assistant_message")

    (entry,) = wait_until_decided(http, request["id"])["approvals"]
    assert (entry["approve"], entry["decided_by"]) == (False, "holdfast: expired")
    assert "decided_by_id" not in entry
    response, result = history(client, agent.id)[-3:-1]
    assert response["message_type"] == "approval_response_message"
    assert result["tool_return"].startswith(
        "Error: request to call tool denied. User reason: Nobody answered until "
    )
    with pytest.raises(ConflictError, match=f"{CALL.id} was denied by holdfast: expired at "):
        answer(client, agent.id, allow())
    late = http.post(f"/v1/approvals/{request['id']}", json={"approve": True})
    assert late.status_code == 409
    assert "was denied by holdfast: expired at " in late.json()["detail"]
    assert_answers(client, provider, agent.id)


def test_the_agents_rule_may_have_it_approved(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    timed = rule(**SOON, approval_on_timeout="approve")
    updated = client.agents.update(agent.id, tool_rules=[timed])  # type: ignore[list-item] # V1 knows no such fields
    assert updated.tool_rules is not None
    assert updated.tool_rules[0].model_dump(exclude_unset=True) == timed | {"prompt_template": None}
    pause(client, provider, agent.id)
    provider.script("Shouted.")
    wait_for_last_message(client, agent.id, "assistant_message")
    assert history(client, agent.id)[-2]["tool_return"] == "HI!"


def test_a_rule_without_a_timeout_looks_as_in_v1(client: Letta, agent: AgentState) -> None:
    shown = client.agents.retrieve(agent.id).tool_rules
    assert shown is not None
    assert {tuple(sorted(item.model_dump(exclude_unset=True))) for item in shown} == {
        ("prompt_template", "tool_name", "type")
    }


def test_the_inbox_shows_and_sorts_by_what_expires(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    plain = pause(client, provider, agent.id)[-1]["id"]
    conversation = client.conversations.create(agent_id=agent.id)
    provider.script(Answer(ToolCall("whisper", {"text": "psst"}, id="call_2")))
    for _ in client.conversations.messages.create(conversation.id, input="Go", extra_body=LATER):
        pass
    listed = http.get("/v1/approvals", params={"agent_id": agent.id, "order_by": "expires_at"})
    urgent, patient = listed.json()
    assert (patient["id"], patient["expires_at"], patient["deadlines"]) == (plain, None, [])
    (deadline,) = urgent["deadlines"]
    assert deadline == {
        "tool_call_id": "call_2",
        "expires_at": urgent["expires_at"],
        "on_timeout": "deny",
    }
    assert http.get(f"/v1/approvals/{urgent['id']}").json()["expires_at"] == urgent["expires_at"]


def test_pending_approval_says_until_when(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    def pending() -> dict[str, Any]:
        query = {"include": "agent.pending_approval"}
        shown: dict[str, Any] = http.get(f"/v1/agents/{agent.id}", params=query).json()
        return dict(shown["pending_approval"])

    pause(client, provider, agent.id)
    assert "expires_at" not in pending()
    provider.script("Done.")
    answer(client, agent.id, allow())
    pause(client, provider, agent.id, extra_body=LATER)
    assert pending()["expires_at"] is not None
    assert client.agents.retrieve(agent.id, include=["agent.pending_approval"]).pending_approval


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"approval_timeout_seconds": 0}, "greater than or equal to 1"),
        ({"approval_timeout_seconds": MAX_TIMEOUT_SECONDS + 1}, "less than or equal to 31536000"),
        ({"approval_timeout_seconds": "soon"}, "valid number"),
        ({"approval_timeout_seconds": 5, "approval_on_timeout": "fail"}, "deny"),
    ],
)
def test_a_timeout_that_makes_no_sense_is_refused(
    client: Letta, agent: AgentState, body: dict[str, Any], words: str
) -> None:
    with pytest.raises(APIStatusError) as sent:
        client.agents.messages.create(agent.id, input="Hi", extra_body=body)
    with pytest.raises(APIStatusError) as ruled:
        client.agents.update(agent.id, extra_body={"tool_rules": [rule(**body)]})
    for caught in (sent, ruled):
        assert caught.value.status_code == 422
        assert words in caught.value.response.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"approval_on_timeout": "deny"}, "approval_on_timeout needs approval_timeout_seconds"),
        ({"type": "exit_loop"} | SOON, "are for rules of type requires_approval, not exit_loop"),
    ],
)
def test_a_rule_that_would_be_ignored_is_refused(
    client: Letta, agent: AgentState, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(APIStatusError, match=words) as caught:
        client.agents.update(agent.id, extra_body={"tool_rules": [rule(**fields)]})
    assert caught.value.status_code == 422
