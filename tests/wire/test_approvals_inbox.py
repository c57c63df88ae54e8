"""The inbox of pending approvals, over HTTP and on the command line. Not in V1."""

import json
import subprocess
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dicts, eventually, history
from tests.support.server_launcher import run_forked
from tests.support.server_process import ServerProcess, clean_environment
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import CALL, allow, answer, client_result, pause
from tests.support.wire_checks import assert_answers

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

COMMAND_SECONDS = 30


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool") -> AgentState:
    tools = [make_tool(source, default_requires_approval=True).id for source in (SHOUT, WHISPER)]
    return make_agent(tool_ids=tools, parallel_tool_calls=True)


@pytest.fixture
def waiting(client: Letta, provider: ScriptedProvider, agent: AgentState) -> str:
    """The id of a pending approval request."""
    return str(pause(client, provider, agent.id)[-1]["id"])


def inbox(http: httpx.Client, **query: Any) -> list[str]:
    found = http.get("/v1/approvals", params=query)
    assert found.status_code == 200, found.text
    return [item["id"] for item in found.json()]


def wait_for_end(client: Letta, run_id: str) -> Any:
    return eventually(
        lambda: client.runs.retrieve(run_id), lambda run: run.completed_at is not None
    )


def test_it_shows_what_waits_in_all_threads_of_all_agents(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState, waiting: str
) -> None:
    conversation = client.conversations.create(agent_id=agent.id)
    provider.script(Answer(ToolCall("whisper", {"text": "psst"}, id="call_2")))
    items = as_dicts(client.conversations.messages.create(conversation.id, input="Go on"))
    other = next(i["id"] for i in items if i["message_type"] == "approval_request_message")

    assert inbox(http, agent_id=agent.id) == [waiting, other]
    assert inbox(http, agent_id=agent.id, order="desc") == [other, waiting]
    assert inbox(http, agent_id=agent.id, limit=1) == [waiting]
    assert inbox(http, agent_id=agent.id, after=waiting) == [other]
    assert inbox(http, agent_id=agent.id, conversation_id="default") == [waiting]
    assert inbox(http, conversation_id=conversation.id) == [other]
    assert inbox(http, agent_id=agent.id, tool_name="whisper") == [other]
    assert inbox(http, agent_id=agent.id, tool_name="hi") == []
    counted = http.get("/v1/approvals", params={"agent_id": agent.id, "limit": 1})
    assert counted.headers["x-total-count"] == "2"
    shown = http.get(f"/v1/approvals/{other}").json()
    assert (shown["status"], shown["conversation_id"]) == ("pending", conversation.id)
    assert [call["name"] for call in shown["tool_calls"]] == ["whisper"]


def test_what_is_answered_or_cancelled_or_forgotten_waits_no_longer(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState, waiting: str
) -> None:
    provider.script("Done.")
    answer(client, agent.id, allow())
    assert inbox(http, agent_id=agent.id) == []
    pause(client, provider, agent.id)
    client.agents.messages.cancel(agent.id)
    assert inbox(http, agent_id=agent.id) == []
    pause(client, provider, agent.id)
    client.agents.messages.reset(agent.id, add_default_initial_messages=False)
    assert inbox(http, agent_id=agent.id) == []


@pytest.mark.parametrize("approve", [True, False])
def test_deciding_there_lets_the_agent_go_on(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    waiting: str,
    approve: bool,
) -> None:
    provider.script("I see.")

    run = http.post(
        f"/v1/approvals/{waiting}",
        json={"approve": approve, "reason": "because", "decided_by": "Ada"},
    ).json()

    assert wait_for_end(client, run["id"]).stop_reason == "end_turn"
    response, result, spoke = history(client, agent.id)[-3:]
    assert response["approvals"][0]["decided_by"] == "Ada"
    assert result["status"] == ("success" if approve else "error")
    assert spoke["content"] == "I see."
    shown = http.get(f"/v1/approvals/{waiting}").json()
    assert shown["status"] == "decided"
    assert (shown["approvals"][0]["approve"], shown["approvals"][0]["reason"]) == (
        approve,
        "because",
    )
    again = http.post(f"/v1/approvals/{waiting}", json={"approve": True})
    assert again.status_code == 409
    outcome = "approved" if approve else "denied"
    assert f"{CALL.id} was {outcome} by Ada at " in again.json()["detail"]
    assert_answers(client, provider, agent.id)


def test_each_call_may_have_its_own_decision_and_client_tools_stay(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    look: Any = {"name": "look"}
    calls = (CALL, ToolCall("look", {}, id="call_look"))
    *_, request = pause(client, provider, agent.id, *calls, client_tools=[look])
    provider.script("I see.")

    path = f"/v1/approvals/{request['id']}"
    refused = http.post(path, json={"approvals": [allow()]})
    run = http.post(path, json={"approvals": [allow(), client_result("call_look")]}).json()

    assert refused.status_code == 400
    assert "Waiting: shout (call_held), look (call_look)." in refused.json()["detail"]
    wait_for_end(client, run["id"])
    results = history(client, agent.id)[-2]["tool_returns"]
    assert [entry["tool_return"] for entry in results] == ["HI!", "mine"]
    assert "look" in provider.requests[-1].tool_names


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"approve": True, "approvals": [allow()]}, 422),
        ({"approvals": []}, 422),
        ({"approve": True, "decided_by": "x" * 201}, 422),
        ({"approvals": [allow("nope")]}, 400),
    ],
)
def test_what_decides_nothing_is_refused(
    http: httpx.Client, agent: AgentState, waiting: str, body: dict[str, Any], status: int
) -> None:
    assert http.post(f"/v1/approvals/{waiting}", json=body).status_code == status
    assert inbox(http, agent_id=agent.id) == [waiting]


def test_what_asks_for_nothing_is_not_there(
    client: Letta, http: httpx.Client, agent: AgentState, waiting: str
) -> None:
    said = history(client, agent.id)[0]["id"]
    for message_id in (said, f"message-{uuid4()}"):
        path = f"/v1/approvals/{message_id}"
        assert http.get(path).status_code == 404
        assert http.post(path, json={"approve": True}).status_code == 404
    assert http.get("/v1/approvals", params={"after": f"message-{uuid4()}"}).status_code == 404
    assert http.get("/v1/approvals", params={"conversation_id": "default"}).status_code == 400


def test_an_operator_decides_on_the_command_line(
    client: Letta,
    provider: ScriptedProvider,
    server: ServerProcess,
    agent: AgentState,
    waiting: str,
    tmp_path: "Path",
) -> None:
    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        environment = clean_environment(tmp_path, HOLDFAST_URL=server.address)
        return run_forked(["approvals", *words], environment, COMMAND_SECONDS)

    assert f"{waiting} (pending)" in holdfast("list", "--agent", agent.id).stdout
    assert holdfast("list", "--agent", agent.id, "--tool", "whisper").stdout.startswith("Nothing")
    assert [
        i["id"] for i in json.loads(holdfast("list", "--agent", agent.id, "--json").stdout)
    ] == [waiting]
    assert 'call call_held: shout {"text":"hi"}' in holdfast("show", waiting).stdout
    provider.script("I see.")
    done = holdfast("deny", waiting, "--reason", "too loud", "--by", "Ada")
    assert done.stdout.startswith(f"{waiting} is denied; run-")
    eventually(
        lambda: holdfast("show", waiting).stdout, lambda text: "denied call_held by Ada" in text
    )
    late = holdfast("approve", waiting)
    assert late.returncode == 1
    assert "was denied by Ada" in late.stderr
