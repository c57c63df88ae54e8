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


def list_rules(agent: AgentState) -> list[tuple[str, str]]:
    return [(rule["type"], rule["tool_name"]) for rule in as_dicts(agent.tool_rules or [])]


@pytest.mark.tools(62)
@pytest.mark.both_databases
def test_of_equal_rules_the_first_is_stored(client: Letta, make_agent: "MakeAgent") -> None:
    first = {"type": "run_first", "tool_name": "shout", "args": {"text": "one"}}
    exits = {"type": "exit_loop", "tool_name": "shout", "prompt_template": "Stop."}
    parent = {"type": "parent_last_tool", "tool_name": "add", "children": ["shout", "whisper"]}
    rules: list[Any] = [
        first,
        exits,
        parent,
        first | {"args": {"text": "two"}},
        exits | {"prompt_template": None},
        parent | {"children": ["whisper", "shout"]},
        {"type": "max_count_per_step", "tool_name": "add", "max_count_limit": 1},
        {"type": "max_count_per_step", "tool_name": "add", "max_count_limit": 2},
        {"type": "requires_approval", "tool_name": "add"},
    ]

    agent = make_agent(tool_rules=rules)

    def show(shown: AgentState) -> list[dict[str, Any]]:
        sent = [key for rule in rules for key in rule]
        return [
            {key: rule[key] for key in sent if rule.get(key) is not None}
            for rule in as_dicts(shown.tool_rules or [])
        ]

    # What a create or an update answers is what is stored.
    assert show(agent) == [*rules[:3], *rules[6:]]
    assert show(client.agents.retrieve(agent.id)) == show(agent)
    changed = client.agents.update(agent.id, tool_rules=rules[::-1])
    assert show(changed) == [
        *rules[:5:-1],
        rules[5],
        {"type": "exit_loop", "tool_name": "shout"},
        rules[3],
    ]
    assert show(client.agents.retrieve(agent.id)) == show(changed)
    assert list_rules(client.agents.update(agent.id, tool_rules=[])) == []
    assert list_rules(client.agents.retrieve(agent.id)) == []


def test_an_approval_is_added_at_the_end_and_only_itself_removed(
    client: Letta, make_ruled_agent: Any
) -> None:
    sent = [("exit_loop", "shout"), ("requires_approval", "pick"), ("run_first", "whisper")]
    agent = make_ruled_agent(*({"type": kind, "tool_name": name} for kind, name in sent))

    def require(name: str, *, approval: bool) -> list[tuple[str, str]]:
        client.agents.tools.update_approval(
            name, agent_id=agent.id, body_requires_approval=approval
        )
        return list_rules(client.agents.retrieve(agent.id))

    assert require("shout", approval=True) == [*sent, ("requires_approval", "shout")]
    assert require("shout", approval=True) == [*sent, ("requires_approval", "shout")]
    assert require("shout", approval=False) == sent
    assert require("pick", approval=False) == [sent[0], sent[2]]


@pytest.mark.tools(47)
def test_base_tools_get_their_rules_if_the_caller_asks_for_them(make_agent: "MakeAgent") -> None:
    asked = make_agent(include_base_tools=True, include_base_tool_rules=True)
    not_asked = make_agent(include_base_tools=True, include_base_tool_rules=False)
    silent = make_agent(include_base_tools=True)

    assert list_rules(asked) == [
        ("continue_loop", name)
        for name in ("conversation_search", "memory_insert", "memory_replace")
    ]
    assert list_rules(not_asked) == list_rules(silent) == []


@pytest.mark.tools(47)
def test_base_rules_stand_between_the_callers_and_the_approvals(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    held = make_tool(SHOUT, default_requires_approval=True)

    agent = make_agent(
        tools=["memory_finish_edits", "send_message", "memory", "run_code", "shout"],
        extra_body={"include_multi_agent_tools": True},
        include_base_tool_rules=True,
        tool_rules=[
            {"type": "exit_loop", "tool_name": "send_message"},
            {"type": "continue_loop", "tool_name": "shout"},
        ],
    )

    assert list_rules(agent) == [
        ("exit_loop", "send_message"),
        ("continue_loop", "shout"),
        ("exit_loop", "send_message_to_agent_async"),
        ("exit_loop", "memory_finish_edits"),
        ("continue_loop", "memory"),
        ("requires_approval", held.name),
    ]
    assert list_rules(client.agents.retrieve(agent.id)) == list_rules(agent)


def test_a_tool_whose_rule_ends_the_turn_ends_it(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", model: str
) -> None:
    agent = make_agent(tools=["send_message"], include_base_tool_rules=True)
    provider.script(call("send_message", message="Hi."))

    reply = client.agents.messages.create(agent.id, input="Go")

    assert len(provider.requests) == 1
    assert as_dict(reply.stop_reason)["stop_reason"] == "tool_rule"


@pytest.mark.tools(40)
def test_an_agent_gets_the_tools_to_talk_to_other_agents(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent"
) -> None:
    names = {
        "send_message_to_agent_and_wait_for_reply",
        "send_message_to_agents_matching_tags",
        "send_message_to_agent_async",
    }

    agent = make_agent(
        extra_body={"include_multi_agent_tools": True},
        tools=["send_message_to_agent_async", "run_code"],
    )

    attached = {tool.name: tool.tool_type for tool in client.agents.tools.list(agent.id).items}
    assert attached == dict.fromkeys(names, "letta_multi_agent_core") | {
        "run_code": "letta_builtin"
    }
    client.agents.messages.create(agent.id, input="Go")
    assert names <= set(provider.requests[0].tool_names)
    for fields in ({}, {"extra_body": {"include_multi_agent_tools": False}}):
        assert make_agent(**fields).tools == []
