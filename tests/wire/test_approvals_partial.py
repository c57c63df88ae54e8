"""Calls that are answered one by one, by several people. Not in V1."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import BadRequestError, ConflictError, Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, eventually, history
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended
from tests.support.tool_sources import SHOUT, WHISPER
from tests.support.wire_approvals import (
    allow,
    answer,
    approval_message,
    client_result,
    deny,
    pause,
    user_message,
)
from tests.support.wire_checks import assert_answers

from holdfast.testing import ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

CALLS = [ToolCall("shout", {"text": key}, id=key) for key in ("t1", "t2", "t3")]
FREE = ToolCall("whisper", {"text": "PSST"}, id="t4")


@pytest.fixture
def agent(make_agent: "MakeAgent", make_tool: "MakeTool", model: str) -> AgentState:
    held = make_tool(SHOUT, default_requires_approval=True)
    return make_agent(tool_ids=[held.id, make_tool(WHISPER).id], parallel_tool_calls=True)


@pytest.fixture
def request_id(client: Letta, provider: ScriptedProvider, agent: AgentState) -> str:
    return str(pause(client, provider, agent.id, *CALLS, FREE)[-1]["id"])


def partial_message(*entries: dict[str, Any], **more: Any) -> Any:
    return approval_message(*entries) | {"partial": True} | more


def send(client: Letta, agent_id: str, *items: Any) -> Any:
    return client.agents.messages.create(agent_id, messages=list(items))


def test_the_run_goes_on_with_the_last_answer(
    client: Letta, provider: ScriptedProvider, agent: AgentState, request_id: str
) -> None:
    asked_so_far = len(provider.requests)
    first = send(client, agent.id, partial_message(deny("t2", decided_by="Ada")))
    assert as_dicts(first.messages) == []
    assert as_dict(first.stop_reason)["stop_reason"] == "requires_approval"
    waiting = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert as_dict(waiting)["pending_approval"]["id"] == request_id
    items = as_dicts(
        client.agents.messages.stream(
            agent.id, messages=[partial_message(client_result("t3"))], stream_tokens=True
        )
    )
    assert_ended(items, "requires_approval")
    assert len(provider.requests) == asked_so_far
    provider.script("All done.")

    last = as_dicts(
        send(client, agent.id, partial_message(allow("t1")), user_message("Go.")).messages
    )

    results = {entry["tool_call_id"]: entry["tool_return"] for entry in last[0]["tool_returns"]}
    assert list(results) == ["t1", "t2", "t3", "t4"]
    assert (results["t1"], results["t3"], results["t4"]) == ("T1!", "mine", "psst…")
    assert "denied" in results["t2"]
    assert last[-1]["content"] == "All done."
    assert provider.requests[-1].refused is None
    responses = [row["approvals"] for row in history(client, agent.id) if row.get("approvals")]
    assert [[entry["tool_call_id"] for entry in row] for row in responses] == [
        ["t2"],
        ["t3"],
        ["t1"],
    ]
    assert_answers(client, provider, agent.id)


def test_without_the_word_all_that_is_left_must_be_answered_at_once(
    client: Letta, provider: ScriptedProvider, agent: AgentState, request_id: str
) -> None:
    with pytest.raises(BadRequestError, match="Invalid tool call IDs"):
        answer(client, agent.id, allow("t1"))
    send(client, agent.id, partial_message(allow("t1")))
    with pytest.raises(
        BadRequestError, match=r"Expected '\['t2', 't3'\]', but received '\['t2'\]'"
    ):
        answer(client, agent.id, allow("t2"))
    provider.script("Done.")

    result, *_ = answer(client, agent.id, allow("t2"), deny("t3"))

    assert [entry["status"] for entry in result["tool_returns"]] == [
        "success",
        "success",
        "error",
        "success",
    ]


def test_a_contradicting_answer_is_refused_and_an_equal_one_is_accepted(
    client: Letta, provider: ScriptedProvider, agent: AgentState, request_id: str
) -> None:
    send(client, agent.id, partial_message(allow("t1"), decided_by="Ada"))

    with pytest.raises(ConflictError, match="t1 was approved by Ada at "):
        send(client, agent.id, partial_message(deny("t1")))
    send(client, agent.id, partial_message(allow("t1")))
    with pytest.raises(ConflictError) as caught:
        client.agents.messages.create(agent.id, input="Well?")

    detail = caught.value.response.json()["detail"]
    assert [call["tool_call_id"] for call in detail["pending_calls"]] == ["t2", "t3"]
    with pytest.raises(BadRequestError, match="Send the partial answer alone"):
        send(client, agent.id, partial_message(allow("t2")), user_message("Go."))
    provider.script("Done.")
    answer(client, agent.id, deny("t2"), deny("t3"))
    assert_answers(client, provider, agent.id)


def test_a_cancel_in_between_lets_go_of_everything(
    client: Letta, provider: ScriptedProvider, agent: AgentState, request_id: str
) -> None:
    send(client, agent.id, partial_message(allow("t1"), decided_by="Ada"))
    send(client, agent.id, partial_message(deny("t2", reason="Too loud.")))

    client.agents.messages.cancel(agent.id)

    # Decisions stay; the cancel denies only the undecided calls.
    *_, ada, other, cancelled, result = history(client, agent.id)
    assert [entry["tool_call_id"] for entry in ada["approvals"]] == ["t1"]
    assert ada["approvals"][0]["decided_by"] == "Ada"
    assert [entry["reason"] for entry in other["approvals"]] == ["Too loud."]
    assert [entry["tool_call_id"] for entry in cancelled["approvals"]] == ["t3"]
    assert {entry["status"] for entry in result["tool_returns"]} == {"error"}
    texts = {entry["tool_call_id"]: entry["tool_return"] for entry in result["tool_returns"]}
    assert texts["t1"] == "The run was cancelled before this tool was started."
    assert texts["t2"].endswith("Too loud.")
    assert texts["t3"].endswith("The user cancelled the request, so the tool call was denied.")
    # A repetition of the first answer does not count as executed either.
    with pytest.raises(BadRequestError, match="No tool call is currently awaiting approval"):
        answer(client, agent.id, allow("t1"))
    assert_answers(client, provider, agent.id)


def test_the_inbox_takes_answers_one_by_one_too(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    request_id: str,
) -> None:
    path = f"/v1/approvals/{request_id}"
    run = http.post(path, json={"approvals": [deny("t2")], "partial": True}).json()
    eventually(lambda: client.runs.retrieve(run["id"]), lambda seen: seen.completed_at is not None)
    shown_now = http.get(path).json()
    assert shown_now["status"] == "pending"
    assert [entry["tool_call_id"] for entry in shown_now["approvals"]] == ["t2"]
    waiting = http.get("/v1/approvals", params={"agent_id": agent.id}).json()
    assert [item["id"] for item in waiting] == [request_id]
    assert waiting[0]["approvals"] == shown_now["approvals"]
    provider.script("Done.")

    run = http.post(path, json={"approve": True}).json()

    eventually(lambda: client.runs.retrieve(run["id"]), lambda seen: seen.completed_at is not None)
    shown_now = http.get(path).json()
    assert {e["tool_call_id"]: e["approve"] for e in shown_now["approvals"]} == {
        "t1": True,
        "t2": False,
        "t3": True,
    }
    assert http.get("/v1/approvals", params={"agent_id": agent.id}).json() == []


def test_whichever_run_the_inbox_names_is_cancelled_nothing_waits_any_more(
    client: Letta,
    http: httpx.Client,
    provider: ScriptedProvider,
    agent: AgentState,
    request_id: str,
) -> None:
    send(client, agent.id, partial_message(deny("t2", decided_by="Ada")))
    shown_alone = http.get(f"/v1/approvals/{request_id}").json()
    (listed_one,) = http.get("/v1/approvals", params={"agent_id": agent.id}).json()
    asked, waits = shown_alone["run_id"], shown_alone["waiting_run_id"]
    assert waits not in (None, asked)
    assert (listed_one["run_id"], listed_one["waiting_run_id"]) == (asked, waits)

    assert client.agents.messages.cancel(agent.id, run_ids=[asked]) == {asked: "cancelled"}

    assert client.runs.retrieve(waits).status == "cancelled"
    assert http.get(f"/v1/approvals/{request_id}").json()["waiting_run_id"] is None
    assert_answers(client, provider, agent.id)
