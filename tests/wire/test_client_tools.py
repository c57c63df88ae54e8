"""Tools that the client offers and runs itself (wire-v1 §6.8)."""

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dicts, eventually, history
from tests.support.stream_items import IGNORE_DEPRECATION, assert_ended
from tests.support.tool_sources import SHOUT
from tests.support.wire_approvals import allow, answer, client_result, pause
from tests.support.wire_checks import assert_answers

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = [pytest.mark.slow, IGNORE_DEPRECATION]

LOOK: Any = {
    "name": "look",
    "description": "Look out of the client's window.",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
}
LOOKING = ToolCall("look", {"where": "north"}, id="call_look")
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.fixture
def agent(make_agent: "MakeAgent", model: str) -> AgentState:
    return make_agent()


def test_it_is_offered_for_one_request_and_the_client_answers_it(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    *_, request = pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    assert provider.requests[-1].tool_names == ["look"]
    assert request["tool_call"]["name"] == "look"

    provider.script("Snow, then.")
    result, spoke = answer(
        client, agent.id, client_result(LOOKING.id, tool_return="snow"), client_tools=[LOOK]
    )

    assert (result["status"], result["tool_return"]) == ("success", "snow")
    assert spoke["content"] == "Snow, then."
    assert provider.requests[-1].tool_names == ["look"]
    provider.script("Bye.")
    client.agents.messages.create(agent.id, input="Bye")
    assert provider.requests[-1].tool_names == []


def test_a_client_that_does_not_bring_it_again_has_it_no_longer(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    again = ToolCall("look", {"where": "south"}, id="call_again")
    provider.script(Answer(again), "No window, then.")

    messages = answer(client, agent.id, client_result(LOOKING.id))

    results = [row for row in messages if row["message_type"] == "tool_return_message"]
    assert (results[1]["status"], results[1]["tool_call_id"]) == ("error", "call_again")
    assert "Tool not found" in results[1]["tool_return"]
    assert messages[-1]["content"] == "No window, then."


def test_its_results_may_come_as_an_item_of_their_own(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    provider.script("I see.")
    item: Any = {
        "type": "tool_return",
        "tool_returns": [client_result(LOOKING.id, status="error", stderr=["broken"])],
    }

    reply = client.agents.messages.create(agent.id, messages=[item], client_tools=[LOOK])

    result = as_dicts(reply.messages)[0]
    assert (result["status"], result["tool_return"]) == ("error", "mine")
    assert result["stderr"] == ["broken"]
    assert_answers(client, provider, agent.id)


def test_without_parameters_it_takes_none(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id, ToolCall("look", {}), client_tools=[{"name": "look"}])

    assert provider.requests[-1].tool_names == ["look"]
    assert provider.requests[-1].refused is None


def test_it_takes_the_place_of_an_attached_tool_that_approving_runs(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    mine: Any = LOOK | {"name": "shout"}
    call = ToolCall("shout", {"text": "hi"}, id="call_1")
    pause(client, provider, agent.id, call, client_tools=[mine])
    (offered,) = provider.requests[-1].tools
    assert "client's window" in str(offered)

    provider.script("Loud.")
    result, *_ = answer(client, agent.id, allow("call_1"), client_tools=[mine])

    assert result["tool_return"] == "HI!"


@pytest.mark.parametrize("resent", [[LOOK], []], ids=["brought again", "not brought again"])
def test_approving_what_only_the_client_has_finds_no_tool(
    client: Letta, provider: ScriptedProvider, agent: AgentState, resent: list[Any]
) -> None:
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    provider.script("A pity.")

    result, *_ = answer(client, agent.id, allow(LOOKING.id), client_tools=resent)

    assert result["status"] == "error"
    assert "Tool not found" in result["tool_return"]
    assert_answers(client, provider, agent.id)


def test_it_works_for_requests_that_nobody_waits_for(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    provider.script(Answer(LOOKING))

    run = client.agents.messages.create_async(agent.id, input="Look", client_tools=[LOOK])

    ended = eventually(
        lambda: client.runs.retrieve(run.id), lambda seen: seen.completed_at is not None
    )
    assert ended.stop_reason == "requires_approval"
    provider.script("I see.")
    assert answer(client, agent.id, client_result(LOOKING.id))[0]["tool_return"] == "mine"


def test_a_long_result_is_cut_to_what_the_window_bears(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent(context_window_limit=8_000)
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    provider.script("Long.")

    result, *_ = answer(client, agent.id, client_result(LOOKING.id, tool_return="x" * 7_000))

    assert result["tool_return"] == "x" * 6_400 + "… [truncated 600 chars]"
    response = history(client, agent.id)[-3]
    assert response["approvals"][0]["tool_return"] == result["tool_return"]


def test_a_picture_reaches_the_model_and_the_history(
    client: Letta, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    provider.script("A dot.")
    parts = [
        {"type": "text", "text": "Here:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}},
    ]

    result, spoke = answer(client, agent.id, client_result(LOOKING.id, tool_return=parts))

    assert result["tool_return"] == "Here:\n[Image omitted]"
    text, image = result["tool_returns"][0]["tool_return"]
    assert text["text"] == "Here:"
    assert image["source"]["data"] == DOT
    assert DOT in str(provider.requests[-1].messages)
    assert provider.requests[-1].refused is None
    assert spoke["content"] == "A dot."
    assert history(client, agent.id)[-2]["tool_returns"] == result["tool_returns"]


def test_it_streams_like_any_other(
    client: Letta, http: httpx.Client, provider: ScriptedProvider, agent: AgentState
) -> None:
    pause(client, provider, agent.id, LOOKING, client_tools=[LOOK])
    provider.script("I see.")
    item: Any = {"type": "approval", "approvals": [client_result(LOOKING.id)]}

    items = as_dicts(
        client.agents.messages.stream(
            agent.id, messages=[item], client_tools=[LOOK], stream_tokens=True
        )
    )

    assert (items[0]["tool_call_id"], items[0]["tool_return"]) == (LOOKING.id, "mine")
    assert_ended(items, "end_turn")
