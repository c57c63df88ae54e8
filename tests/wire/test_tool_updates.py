"""Changing a tool: its source, its schema, its name, and the rules that name it (wire-v1 §2.5)."""

from typing import TYPE_CHECKING, Any

import pytest
from letta_client import BadRequestError, Letta
from tests.support.client_objects import as_dict, as_dicts
from tests.support.tool_sources import ADD, SHOUT, WHISPER

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

PLUS = ADD.replace("def add", "def plus")


def build_schema(name: str, **properties: Any) -> dict[str, object]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"Does {name}.", "parameters": parameters}


def without_nulls(rule: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if value is not None}


def read_detail(error: BadRequestError) -> str:
    body: Any = error.body
    return str(body["detail"])


A = build_schema("plus", a={"type": "integer", "description": "The first number."})


@pytest.mark.tools(63)
def test_a_schema_with_another_name_renames_the_tool_which_runs_as_before(
    client: Letta, provider: ScriptedProvider, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(ADD)
    agent = make_agent(tool_ids=[tool.id])

    changed = client.tools.update(tool.id, json_schema=A)

    assert (changed.id, changed.name, changed.description) == (tool.id, "plus", "Does plus.")
    assert changed.json_schema == A
    assert changed.source_code == ADD
    assert client.agents.tools.run("plus", agent_id=agent.id, args={"a": 40}).func_return == "42"
    provider.script(Answer(ToolCall("plus", {"a": 1})), "Done.")
    reply = client.agents.messages.create(agent.id, input="Go")
    assert provider.requests[0].tool_names == ["plus"]
    (returned,) = [item for item in reply.messages if item.message_type == "tool_return_message"]
    assert (returned.status, returned.tool_return) == ("success", "3")


@pytest.mark.tools(63)
def test_a_source_without_the_function_is_refused(client: Letta, make_tool: "MakeTool") -> None:
    tool = make_tool(ADD)

    with pytest.raises(BadRequestError) as lacks_new_name:
        client.tools.update(tool.id, source_code=ADD, json_schema=A)
    with pytest.raises(BadRequestError) as lacks_old_name:
        client.tools.update(tool.id, source_code=PLUS)

    for error, name, source in ((lacks_new_name, "plus", ADD), (lacks_old_name, "add", PLUS)):
        assert read_detail(error.value) == (
            f"Tool name '{name}' does not match the name in the JSON schema '{name}' or in the source code `{source}`"
        )
    assert as_dict(client.tools.retrieve(tool.id)) == as_dict(tool)


def test_a_source_with_a_schema_renames_the_function_too(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool = make_tool(ADD)
    agent = make_agent(tool_ids=[tool.id])
    client.tools.update(tool.id, json_schema=build_schema("sum_up"))

    changed = client.tools.update(
        tool.id, source_code=PLUS.replace("a + b", "a * b"), json_schema=A
    )

    assert changed.name == "plus"
    assert client.agents.tools.run("plus", agent_id=agent.id, args={"a": 21}).func_return == "42"


@pytest.mark.tools(63)
def test_a_name_that_is_taken_is_refused(client: Letta, make_tool: "MakeTool") -> None:
    tool, other = make_tool(ADD), make_tool(SHOUT)

    for name in ("shout", "memory_insert"):
        with pytest.raises(BadRequestError) as caught:
            client.tools.update(tool.id, json_schema=build_schema(name))
        assert read_detail(caught.value) == (
            f"INVALID_ARGUMENT: Tool with name '{name}' already exists in your organization"
        )

    assert as_dict(client.tools.retrieve(tool.id)) == as_dict(tool)
    assert as_dict(client.tools.retrieve(other.id)) == as_dict(other)


@pytest.mark.tools(63)
def test_a_field_that_is_left_out_or_null_stays(client: Letta, make_tool: "MakeTool") -> None:
    tool = make_tool(
        ADD,
        tags=["sums"],
        description="Mine.",
        default_requires_approval=True,
        enable_parallel_execution=True,
        pip_requirements=[{"name": "requests", "version": "2.32.0"}],
    )

    limited = client.tools.update(
        tool.id,
        return_char_limit=99,
        description=None,
        tags=None,
        json_schema=None,
        source_code=None,
        enable_parallel_execution=None,
        pip_requirements=None,
    )

    assert as_dict(limited) == as_dict(tool) | {"return_char_limit": 99}
    cleared = client.tools.update(tool.id, tags=[], default_requires_approval=False)
    assert as_dict(cleared) == as_dict(limited) | {"tags": [], "default_requires_approval": False}


def test_parameters_alone_leave_the_name_to_the_source(
    client: Letta, make_tool: "MakeTool"
) -> None:
    tool = make_tool(ADD)
    parameters: Any = A["parameters"]

    changed = client.tools.update(tool.id, args_json_schema=parameters)
    renamed = client.tools.update(tool.id, source_code=PLUS, args_json_schema=parameters)

    assert changed.json_schema == A | {"name": "add", "description": "Add two numbers."}
    assert (renamed.name, renamed.description) == ("plus", "Add two numbers.")


@pytest.mark.both_databases
def test_the_rules_of_agents_with_the_tool_follow_its_new_name(
    client: Letta, make_agent: "MakeAgent", make_tool: "MakeTool"
) -> None:
    tool, other = make_tool(ADD), make_tool(WHISPER, default_requires_approval=True)
    rules: list[Any] = [
        {"type": "run_first", "tool_name": "add"},
        {
            "type": "constrain_child_tools",
            "tool_name": "whisper",
            "children": ["add", "whisper"],
            "child_arg_nodes": [{"name": "add", "args": {"a": 1}}],
        },
        {
            "type": "conditional",
            "tool_name": "add",
            "child_output_mapping": {"add": "add"},
            "default_child": "add",
        },
        {"type": "exit_loop", "tool_name": "plus"},
        {"type": "exit_loop", "tool_name": "add"},
    ]
    holders = [make_agent(tool_ids=[tool.id, other.id], tool_rules=rules) for _ in range(3)]
    stranger = make_agent(tool_ids=[other.id], tool_rules=rules)

    client.tools.update(tool.id, json_schema=A)

    for holder in holders:
        after = client.agents.retrieve(holder.id)
        assert [without_nulls(rule) for rule in as_dicts(after.tool_rules or [])] == [
            {"type": "run_first", "tool_name": "plus"},
            {
                "type": "constrain_child_tools",
                "tool_name": "whisper",
                "children": ["plus", "whisper"],
                "child_arg_nodes": [{"name": "plus", "args": {"a": 1}}],
            },
            {
                "type": "conditional",
                "tool_name": "plus",
                "child_output_mapping": {"add": "plus"},
                "default_child": "plus",
                "require_output_mapping": False,
            },
            {"type": "exit_loop", "tool_name": "plus"},
            {"type": "requires_approval", "tool_name": "whisper"},
        ]
    unchanged = client.agents.retrieve(stranger.id)
    assert as_dicts(unchanged.tool_rules or []) == as_dicts(stranger.tool_rules or [])
    assert unchanged.updated_at == stranger.updated_at


def test_of_a_built_in_tool_all_but_source_and_schema_can_be_changed(client: Letta) -> None:
    (tool,) = client.tools.list(name="memory_rethink").items
    given: Any = {"tags": ["edits"], "return_char_limit": 99, "default_requires_approval": True}
    changed = client.tools.update(tool.id, **given)
    try:
        assert as_dict(changed) == as_dict(tool) | given
        for refused in (
            {"source_code": ADD.replace("def add", "def memory_rethink")},
            {"json_schema": build_schema("memory_rethink")},
            {"args_json_schema": A["parameters"]},
        ):
            with pytest.raises(BadRequestError, match="is a built-in tool"):
                client.tools.update(tool.id, **refused)
        assert as_dict(client.tools.retrieve(tool.id)) == as_dict(changed)
    finally:
        client.tools.update(
            tool.id, tags=[], return_char_limit=50_000, default_requires_approval=False
        )
