"""Executing the model's tool calls (wire-v1 §7.4, §7.5, §7.7)."""

from typing import TYPE_CHECKING

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dict, as_dicts, kinds
from tests.support.tool_sources import EXPLODE, SECRET, SHOUT, WHISPER

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

DEEP = '{"text": ' + "[" * 960 + "]" * 960 + "}"


def results_in_last_request(provider: ScriptedProvider) -> list[str]:
    """The tool results in the last request, on either wire."""
    texts = []
    for message in provider.requests[-1].messages:
        if message["role"] == "tool":
            texts.append(str(message["content"]))
        if message["role"] == "user" and isinstance(message["content"], list):
            texts += [str(part) for part in message["content"] if part["type"] == "tool_result"]
    return texts


@pytest.mark.wire(2)
def test_a_tool_call_is_run_and_its_result_goes_back_to_the_model(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    tool = make_tool(SHOUT)
    agent = make_agent(
        agent_type="letta_v1_agent",
        include_base_tools=False,
        tool_ids=[tool.id],
        embedding="openai/text-embedding-3-small",
        tags=["loud"],
    )
    provider.script(Answer("I call.", ToolCall("shout", {"text": "hey"})), "It said HEY!")

    reply = client.agents.messages.create(agent.id, input="Shout hey")

    said, call, result, answer = as_dicts(reply.messages)
    assert said["content"] == "I call."
    assert call["message_type"] == "tool_call_message"
    assert call["tool_call"] == call["tool_calls"][0]
    assert call["tool_call"]["name"] == "shout"
    assert call["tool_call"]["arguments"].replace(" ", "") == '{"text":"hey"}'
    assert result["message_type"] == "tool_return_message"
    assert (result["status"], result["tool_return"]) == ("success", "HEY!")
    assert result["tool_call_id"] == call["tool_call"]["tool_call_id"]
    assert result["tool_returns"][0]["tool_return"] == "HEY!"
    assert answer["content"] == "It said HEY!"
    assert provider.requests[0].tool_names == ["shout"]
    assert "HEY!" in results_in_last_request(provider)[0]


def test_several_calls_at_once_come_back_in_their_order(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(
        tool_ids=[make_tool(SHOUT).id, make_tool(WHISPER, enable_parallel_execution=True).id],
        parallel_tool_calls=True,
    )
    provider.script(
        Answer(
            ToolCall("shout", {"text": "a"}, id="call_1"),
            ToolCall("whisper", {"text": "B"}, id="call_2"),
            ToolCall("shout", {"text": "c"}, id="call_3"),
        ),
        "All done.",
    )

    reply = client.agents.messages.create(agent.id, input="Say things")

    calls, results, _ = as_dicts(reply.messages)
    assert [call["tool_call_id"] for call in calls["tool_calls"]] == ["call_1", "call_2", "call_3"]
    assert [(r["tool_call_id"], r["tool_return"]) for r in results["tool_returns"]] == [
        ("call_1", "A!"),
        ("call_2", "b…"),
        ("call_3", "C!"),
    ]
    assert provider.requests[-1].refused is None


def test_without_the_wish_for_parallel_calls_only_the_first_is_kept(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(
        Answer(ToolCall("shout", {"text": "a"}), ToolCall("shout", {"text": "b"})), "Done."
    )

    reply = client.agents.messages.create(agent.id, input="Shout")

    calls, results, _ = as_dicts(reply.messages)
    assert len(calls["tool_calls"]) == len(results["tool_returns"]) == 1
    assert provider.requests[-1].refused is None


def test_an_error_of_a_tool_goes_back_to_the_model_and_the_run_goes_on(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(EXPLODE).id])
    provider.script(Answer(ToolCall("explode", {"reason": "bad luck"})), "It failed.")

    reply = client.agents.messages.create(agent.id, input="Try it")

    _, result, answer = as_dicts(reply.messages)
    assert result["status"] == "error"
    assert result["tool_return"] == "Error executing function explode: ValueError: bad luck"
    assert result["stdout"] == ["about to explode"]
    assert "bad luck" in results_in_last_request(provider)[0]
    assert answer["content"] == "It failed."
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(ToolCall("nothing", {}), id="a tool that is not attached"),
        pytest.param(ToolCall("shout", "{no json"), id="arguments that are no JSON"),
        pytest.param(ToolCall("shout", DEEP), id="arguments that are nested too deeply"),
        pytest.param(ToolCall("shout", {"wrong": 1}), id="arguments that it does not take"),
    ],
)
def test_a_call_that_cannot_be_carried_out_goes_back_to_the_model(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
    call: ToolCall,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.script(Answer(call), "I see.")

    reply = client.agents.messages.create(agent.id, input="Try it")

    *_, result, answer = as_dicts(reply.messages)
    assert result["status"] == "error"
    assert answer["content"] == "I see."
    assert provider.requests[-1].refused is None


def test_a_tool_sees_the_secrets_of_its_agent_and_nothing_of_the_server(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    agent = make_agent(
        tool_ids=[make_tool(SECRET).id], secrets={"PASSWORD": "swordfish"}, parallel_tool_calls=True
    )
    provider.script(
        Answer(
            ToolCall("reveal", {"name": "PASSWORD"}), ToolCall("reveal", {"name": "OPENAI_API_KEY"})
        ),
        "Well.",
    )

    reply = client.agents.messages.create(agent.id, input="Tell")

    results = as_dicts(reply.messages)[1]["tool_returns"]
    assert [result["tool_return"] for result in results] == ["swordfish", "not there"]


@pytest.mark.wire(145)
def test_the_last_allowed_step_runs_its_tool_and_ends_with_max_steps(
    client: Letta,
    provider: ScriptedProvider,
    make_agent: "MakeAgent",
    make_tool: "MakeTool",
    model: str,
) -> None:
    agent = make_agent(tool_ids=[make_tool(SHOUT).id])
    provider.respond_with(lambda _request: Answer(ToolCall("shout", {"text": "again"})))

    reply = client.agents.messages.create(agent.id, input="Never stop", max_steps=2)

    assert kinds(reply.messages) == ["tool_call_message", "tool_return_message"] * 2
    assert as_dict(reply.stop_reason)["stop_reason"] == "max_steps"
    assert len(provider.requests) == 2
    (run,) = client.runs.list(agent_id=agent.id).items
    assert (run.status, run.stop_reason) == ("completed", "max_steps")
