"""Tool rules (wire-v1 §3.12, §7.6)."""

from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from letta_client.types import AgentState
from tests.support.client_objects import as_dict, as_dicts, history
from tests.support.tool_sources import ADD, PICK, SHOUT, WHISPER

from holdfast.testing import Answer, ProviderRequest, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow


@pytest.fixture
def make_ruled_agent(make_agent: "MakeAgent", make_tool: "MakeTool") -> Any:
    """An agent with four tools and the rules that the test gives."""

    def make(*rules: dict[str, Any]) -> AgentState:
        tools = [make_tool(source) for source in (SHOUT, WHISPER, PICK, ADD)]
        return make_agent(tool_ids=[tool.id for tool in tools], tool_rules=list(rules))

    return make


def call(name: str, **arguments: Any) -> Answer:
    return Answer(ToolCall(name, arguments))


def is_forced(request: ProviderRequest) -> bool:
    """Whether the request forces a tool call; each wire has its own values for it."""
    choice = request.body.get("tool_choice")
    if isinstance(choice, dict):
        return choice["type"] in {"any", "tool", "function"}
    return choice in {"required", "any"}


def results(reply: Any) -> list[tuple[str, str]]:
    return [
        (row["status"], row["tool_return"])
        for row in as_dicts(reply.messages)
        if row["message_type"] == "tool_return_message"
    ]


@pytest.mark.wire(144)
def test_run_first_offers_only_its_tool_and_forces_the_call(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "run_first", "tool_name": "shout"})
    provider.script(call("shout", text="first"), "Then this.")

    reply = client.agents.messages.create(agent.id, input="Go")

    first, second = provider.requests
    assert first.tool_names == ["shout"]
    assert is_forced(first)
    assert sorted(second.tool_names) == ["add", "pick", "shout", "whisper"]
    assert not is_forced(second)
    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"


@pytest.mark.wire(144)
def test_a_tool_that_is_not_allowed_now_is_refused_and_the_loop_goes_on(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "run_first", "tool_name": "shout"})
    provider.script(call("whisper", text="no"), call("shout", text="yes"), "Well.")

    reply = client.agents.messages.create(agent.id, input="Go")

    (refused, text), allowed = results(reply)
    assert refused == "error"
    assert "[ToolConstraintError] Cannot call whisper, valid tools include: ['shout']." in text
    assert allowed == ("success", "YES!")


@pytest.mark.wire(144)
def test_exit_loop_ends_the_turn_with_tool_rule(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "exit_loop", "tool_name": "shout"})
    provider.script(call("whisper", text="A"), call("shout", text="b"))

    reply = client.agents.messages.create(agent.id, input="Go")

    assert results(reply) == [("success", "a…"), ("success", "B!")]
    assert as_dict(reply.stop_reason)["stop_reason"] == "tool_rule"
    assert client.runs.list(agent_id=agent.id).items[0].status == "completed"
    assert provider.unused_answers == []
    assert len(provider.requests) == 2


@pytest.mark.wire(144)
def test_required_before_exit_keeps_the_loop_going_unseen_by_the_caller(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "required_before_exit", "tool_name": "shout"})
    provider.script("I am done.", call("shout", text="b"), "Now I am.")

    reply = client.agents.messages.create(agent.id, input="Go")

    assert as_dict(reply.stop_reason)["stop_reason"] == "end_turn"
    assert "You must call shout at least once to exit the loop." in provider.requests[1].user_text
    told = [row for row in history(client, agent.id) if row["message_type"] == "user_message"]
    assert [row["content"] for row in told] == ["Go"]


def test_max_count_per_step_counts_each_call_once(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent(
        {"type": "max_count_per_step", "tool_name": "shout", "max_count_limit": 2}
    )
    provider.script(call("shout", text="a"), call("shout", text="b"), "Enough.")

    client.agents.messages.create(agent.id, input="Go")

    offered = ["shout" in request.tool_names for request in provider.requests]
    assert offered == [True, True, False]
    # The count is per request: the next one starts at zero.
    client.agents.messages.create(agent.id, input="Again")
    assert "shout" in provider.requests[-1].tool_names


@pytest.mark.wire(144)
def test_constrain_child_tools_offers_only_the_children_next(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent(
        {"type": "constrain_child_tools", "tool_name": "shout", "children": ["whisper"]}
    )
    provider.script(call("shout", text="a"), call("whisper", text="B"), "Done.")

    client.agents.messages.create(agent.id, input="Go")

    first, second, third = provider.requests
    assert len(first.tool_names) == 4
    assert second.tool_names == ["whisper"]
    assert is_forced(second)
    assert len(third.tool_names) == 4


def test_parent_last_tool_offers_the_children_only_after_the_parent(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent(
        {"type": "parent_last_tool", "tool_name": "shout", "children": ["whisper"]}
    )
    provider.script(call("shout", text="a"), call("whisper", text="B"), "Done.")

    client.agents.messages.create(agent.id, input="Go")

    first, second, third = provider.requests
    assert "whisper" not in first.tool_names
    assert second.tool_names == ["whisper"]
    assert "whisper" not in third.tool_names


@pytest.mark.parametrize(
    ("answer", "next_tool"), [("loud", "shout"), ("soft", "whisper"), ("else", "add")]
)
def test_conditional_lets_the_output_choose_the_next_tool(
    client: Letta,
    provider: ScriptedProvider,
    make_ruled_agent: Any,
    model: str,
    answer: str,
    next_tool: str,
) -> None:
    agent = make_ruled_agent(
        {
            "type": "conditional",
            "tool_name": "pick",
            "child_output_mapping": {"loud": "shout", "soft": "whisper"},
            "default_child": "add",
        }
    )
    arguments = {"a": 1} if next_tool == "add" else {"text": "x"}
    provider.script(call("pick", answer=answer), call(next_tool, **arguments), "Done.")

    client.agents.messages.create(agent.id, input="Go")

    assert provider.requests[1].tool_names == [next_tool]
    assert is_forced(provider.requests[1])


def test_prefilled_arguments_win_over_the_models(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent(
        {"type": "run_first", "tool_name": "shout", "args": {"text": "as told"}},
        {
            "type": "constrain_child_tools",
            "tool_name": "shout",
            "children": ["add"],
            "child_arg_nodes": [{"name": "add", "args": {"b": 40}}],
        },
    )
    provider.script(call("shout", text="as I like"), call("add", a=2, b=3), "Done.")

    reply = client.agents.messages.create(agent.id, input="Go")

    assert results(reply) == [("success", "AS TOLD!"), ("success", "42")]


def test_prefilled_arguments_that_the_tool_does_not_take_end_the_run(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "run_first", "tool_name": "shout", "args": {"volume": 11}})
    provider.script(call("shout", text="hi"))

    reply = client.agents.messages.create(agent.id, input="Go")

    assert as_dict(reply.stop_reason)["stop_reason"] == "invalid_tool_call"
    assert client.runs.list(agent_id=agent.id).items[0].status == "failed"
    provider.script("I am still here.")
    again = client.agents.messages.create(agent.id, input="And now?")
    assert provider.requests[-1].refused is None
    assert as_dicts(again.messages)[-1]["content"] == "I am still here."


def test_rules_are_described_to_the_model(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any
) -> None:
    agent = make_ruled_agent({"type": "exit_loop", "tool_name": "shout"})
    client.agents.recompile(agent.id)
    client.agents.messages.create(agent.id, input="Go")

    assert "<tool_usage_rules>" in str(provider.requests[-1].body)


def test_the_calls_of_a_rule_bound_agent_are_asked_for_one_by_one(
    client: Letta, provider: ScriptedProvider, make_ruled_agent: Any, model: str
) -> None:
    agent = make_ruled_agent({"type": "exit_loop", "tool_name": "pick"})
    client.agents.update(agent.id, parallel_tool_calls=True)
    provider.script(
        Answer(ToolCall("shout", {"text": "a"}), ToolCall("shout", {"text": "b"})), "Done."
    )

    reply = client.agents.messages.create(agent.id, input="Go")

    assert results(reply) == [("success", "A!")]
