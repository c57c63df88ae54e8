"""Which tools are allowed now (wire-v1 §7.6)."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import tool_rules as rules
from holdfast.core.tool_rules import AllowedTools, allowed_tools
from holdfast.core.tools import Tool, ToolKind

TOOLS = ("a", "b", "c")


@pytest.mark.parametrize(
    ("given", "called", "output", "expected"),
    [
        ([], [], None, AllowedTools(TOOLS)),
        ([rules.RunFirst(tool_name="b")], [], None, AllowedTools(("b",), forced=True)),
        ([rules.RunFirst(tool_name="b")], ["b"], None, AllowedTools(TOOLS)),
        ([rules.RunFirst(tool_name="gone")], [], None, AllowedTools(TOOLS)),
        (
            [rules.ConstrainChildTools(tool_name="a", children=("b",))],
            ["a"],
            None,
            AllowedTools(("b",), forced=True),
        ),
        (
            [rules.ConstrainChildTools(tool_name="a", children=("b",))],
            ["b"],
            None,
            AllowedTools(TOOLS),
        ),
        (
            [rules.ConstrainChildTools(tool_name="a", children=("gone",))],
            ["a"],
            None,
            AllowedTools(TOOLS),
        ),
        (
            [rules.ParentLastTool(tool_name="a", children=("c",))],
            [],
            None,
            AllowedTools(("a", "b")),
        ),
        (
            [rules.ParentLastTool(tool_name="a", children=("c",))],
            ["a"],
            None,
            AllowedTools(("c",), forced=True),
        ),
        (
            [rules.MaxCountPerStep(tool_name="a", max_count_limit=2)],
            ["a"],
            None,
            AllowedTools(TOOLS),
        ),
        (
            [rules.MaxCountPerStep(tool_name="a", max_count_limit=2)],
            ["a", "a"],
            None,
            AllowedTools(("b", "c")),
        ),
        (
            [rules.Conditional(tool_name="a", child_output_mapping={"yes": "b"})],
            ["a"],
            "yes",
            AllowedTools(("b",), forced=True),
        ),
        (
            [rules.Conditional(tool_name="a", child_output_mapping={"True": "b"})],
            ["a"],
            "true",
            AllowedTools(("b",), forced=True),
        ),
        (
            [rules.Conditional(tool_name="a", child_output_mapping={"7": "b"}, default_child="c")],
            ["a"],
            "8",
            AllowedTools(("c",), forced=True),
        ),
        (
            [rules.Conditional(tool_name="a", child_output_mapping={"7": "b"})],
            ["a"],
            "8",
            AllowedTools(TOOLS, forced=True),
        ),
        (
            [
                rules.Conditional(
                    tool_name="a", child_output_mapping={"7": "b"}, require_output_mapping=True
                )
            ],
            ["a"],
            "8",
            AllowedTools(TOOLS),
        ),
        (
            [
                rules.ConstrainChildTools(tool_name="a", children=("b", "c")),
                rules.MaxCountPerStep(tool_name="c", max_count_limit=1),
            ],
            ["c", "a"],
            None,
            AllowedTools(("b",), forced=True),
        ),
    ],
)
def test_the_rules_decide_what_may_be_called(
    given: list[rules.ToolRule], called: list[str], output: str | None, expected: AllowedTools
) -> None:
    assert allowed_tools(given, TOOLS, called, output) == expected


def test_only_approval_rules_leave_parallel_calls_possible() -> None:
    approval = rules.RequiresApproval(tool_name="a")
    assert rules.allows_parallel([approval])
    assert not rules.allows_parallel([approval, rules.ExitLoop(tool_name="b")])


def test_a_required_tool_counts_only_while_it_is_attached() -> None:
    given = [rules.RequiredBeforeExit(tool_name="a"), rules.RequiredBeforeExit(tool_name="gone")]
    assert rules.missing_required_tools(given, TOOLS, []) == ("a",)
    assert rules.missing_required_tools(given, TOOLS, ["a"]) == ()


def test_child_arguments_are_prefilled_right_after_the_parent() -> None:
    nodes = (rules.ChildArguments(name="b", args={"x": 1}),)
    rule = rules.ConstrainChildTools(tool_name="a", children=("b",), child_arg_nodes=nodes)
    assert rules.prefilled_arguments([rule], ["a"], "b") == {"x": 1}
    assert rules.prefilled_arguments([rule], ["c"], "b") == {}


def test_a_refusal_names_the_rule_that_was_broken() -> None:
    text = rules.constraint_error([rules.RunFirst(tool_name="b")], "a", ["b"])
    assert text.startswith("[ToolConstraintError] Cannot call a, valid tools include: ['b'].")
    assert "b must be called first" in text


def test_rules_are_in_the_prompt_unless_only_the_server_needs_them() -> None:
    assert rules.render([rules.RequiresApproval(tool_name="a")]) == ""
    assert "a ends your turn when called" in rules.render([rules.ExitLoop(tool_name="a")])


EQUAL_RULES = {
    "arguments": (
        rules.RunFirst(tool_name="a", args={"x": [1]}),
        rules.RunFirst(tool_name="a", args={"x": [2]}),
    ),
    "template": (
        rules.ExitLoop(tool_name="a", prompt_template="one"),
        rules.ExitLoop(tool_name="a"),
    ),
    "order of children": (
        rules.ParentLastTool(tool_name="a", children=("b", "c")),
        rules.ParentLastTool(tool_name="a", children=("c", "b", "c")),
    ),
    "arguments of children": (
        rules.ConstrainChildTools(
            tool_name="a",
            children=("b",),
            child_arg_nodes=(rules.ChildArguments(name="b", args={"x": 1}),),
        ),
        rules.ConstrainChildTools(tool_name="a", children=("b",)),
    ),
    "order of the mapping": (
        rules.Conditional(tool_name="a", child_output_mapping={"1": "b", "2": "c"}),
        rules.Conditional(tool_name="a", child_output_mapping={"2": "c", "1": "b"}),
    ),
    "time limit": (
        rules.RequiresApproval(tool_name="a", approval_timeout_seconds=5.0),
        rules.RequiresApproval(tool_name="a"),
    ),
}


@pytest.mark.parametrize("pair", EQUAL_RULES.values(), ids=EQUAL_RULES)
def test_of_equal_rules_the_first_is_kept(pair: tuple[rules.ToolRule, rules.ToolRule]) -> None:
    other = rules.ContinueLoop(tool_name="b")
    assert rules.without_duplicates([pair[0], other, pair[1]]) == (pair[0], other)
    assert rules.without_duplicates([pair[1], other, pair[0]]) == (pair[1], other)


DIFFERENT_RULES = {
    "tool": (rules.ExitLoop(tool_name="a"), rules.ExitLoop(tool_name="b")),
    "type": (rules.ExitLoop(tool_name="a"), rules.ContinueLoop(tool_name="a")),
    "type with children": (
        rules.ParentLastTool(tool_name="a", children=("b",)),
        rules.ConstrainChildTools(tool_name="a", children=("b",)),
    ),
    "children": (
        rules.ParentLastTool(tool_name="a", children=("b",)),
        rules.ParentLastTool(tool_name="a", children=("b", "c")),
    ),
    "count": (
        rules.MaxCountPerStep(tool_name="a", max_count_limit=1),
        rules.MaxCountPerStep(tool_name="a", max_count_limit=2),
    ),
    "mapping": (
        rules.Conditional(tool_name="a", child_output_mapping={"1": "b"}),
        rules.Conditional(tool_name="a", child_output_mapping={"1": "c"}),
    ),
    "default": (
        rules.Conditional(tool_name="a", child_output_mapping={"1": "b"}),
        rules.Conditional(tool_name="a", child_output_mapping={"1": "b"}, default_child="c"),
    ),
    "requirement": (
        rules.Conditional(tool_name="a", child_output_mapping={"1": "b"}),
        rules.Conditional(
            tool_name="a", child_output_mapping={"1": "b"}, require_output_mapping=True
        ),
    ),
}


@pytest.mark.parametrize("pair", DIFFERENT_RULES.values(), ids=DIFFERENT_RULES)
def test_rules_that_differ_are_all_kept(pair: tuple[rules.ToolRule, rules.ToolRule]) -> None:
    assert rules.without_duplicates(pair) == pair


NAMES = st.sampled_from(["a", "b", "c"])
CHILDREN = st.lists(NAMES, max_size=3).map(tuple)
ARGUMENTS = st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=1)
ANY_RULE: st.SearchStrategy[rules.ToolRule] = st.one_of(
    st.builds(rules.RunFirst, tool_name=NAMES, args=ARGUMENTS),
    st.builds(rules.ParentLastTool, tool_name=NAMES, children=CHILDREN),
    st.builds(
        rules.ConstrainChildTools,
        tool_name=NAMES,
        children=CHILDREN,
        child_arg_nodes=st.none()
        | st.lists(st.builds(rules.ChildArguments, name=NAMES, args=ARGUMENTS), max_size=2).map(
            tuple
        ),
    ),
    st.builds(
        rules.Conditional,
        tool_name=NAMES,
        child_output_mapping=st.dictionaries(st.sampled_from("12"), NAMES, min_size=1),
        default_child=st.none() | NAMES,
        require_output_mapping=st.booleans(),
    ),
    st.builds(rules.MaxCountPerStep, tool_name=NAMES, max_count_limit=st.integers(1, 2)),
    st.builds(rules.ContinueLoop, tool_name=NAMES),
    st.builds(rules.ExitLoop, tool_name=NAMES),
    st.builds(rules.RequiresApproval, tool_name=NAMES),
)
MANY_RULES = st.lists(ANY_RULE, max_size=8)


@given(MANY_RULES)
def test_rules_without_duplicates_are_some_of_the_rules_in_their_order(
    sent: list[rules.ToolRule],
) -> None:
    stored = rules.without_duplicates(sent)
    remaining = iter(sent)
    assert all(any(rule is other for other in remaining) for rule in stored)
    assert rules.without_duplicates(stored) == stored
    assert rules.without_duplicates([*sent, *sent]) == stored


@given(MANY_RULES)
def test_after_a_rename_no_rule_has_the_old_name_and_nothing_else_has_changed(
    sent: list[rules.ToolRule],
) -> None:
    stored = rules.without_duplicates(sent)
    renamed = rules.rename_tool(stored, "a", "z")
    assert b'"a"' not in msgspec.json.encode(renamed)
    # The name is not one of theirs, so no two rules become equal, and the way back is open.
    assert rules.rename_tool(renamed, "z", "a") == stored


def test_a_rename_to_a_name_that_other_rules_have_leaves_no_duplicates() -> None:
    given_rules = [rules.ExitLoop(tool_name="a"), rules.ExitLoop(tool_name="b")]
    assert rules.rename_tool(given_rules, "a", "b") == (rules.ExitLoop(tool_name="b"),)


def test_the_tools_of_v1_get_their_rules_in_the_order_of_the_tools() -> None:
    names = {
        "memory_insert": ToolKind.SLEEPTIME,
        "send_message": ToolKind.CORE,
        "memory": ToolKind.MEMORY,
        "conversation_search": ToolKind.CORE,
        "memory_finish_edits": ToolKind.SLEEPTIME,
        "send_message_to_agent_async": ToolKind.MULTI_AGENT,
        "send_message_to_agent_and_wait_for_reply": ToolKind.MULTI_AGENT,
        "run_code": ToolKind.BUILTIN,
        "open_files": ToolKind.FILES,
        "mine": ToolKind.CUSTOM,
        "remote": ToolKind.MCP,
    }
    sent = [rules.RunFirst(tool_name="mine"), rules.ExitLoop(tool_name="send_message")]
    made = rules.with_base_rules(sent, [build_tool(name, kind) for name, kind in names.items()])
    assert made == (
        *sent,
        rules.ContinueLoop(tool_name="memory_insert"),
        rules.ContinueLoop(tool_name="memory"),
        rules.ContinueLoop(tool_name="conversation_search"),
        rules.ExitLoop(tool_name="memory_finish_edits"),
        rules.ExitLoop(tool_name="send_message_to_agent_async"),
    )


def build_tool(name: str, kind: ToolKind) -> Tool:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Tool(
        id=f"tool-{name}",
        organization_id="org-1",
        name=name,
        description="",
        json_schema={},
        kind=kind,
        created_at=now,
        updated_at=now,
    )
