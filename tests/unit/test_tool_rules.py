"""Which tools are allowed now (wire-v1 §7.6)."""

import pytest

from holdfast.core import tool_rules as rules
from holdfast.core.tool_rules import AllowedTools, allowed_tools

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


def test_only_exact_duplicates_of_a_rule_are_dropped() -> None:
    once = rules.RunFirst(tool_name="a", args={"x": [1]})
    other = rules.RunFirst(tool_name="a", args={"x": [2]})
    exits = rules.ExitLoop(tool_name="a")
    same = rules.RunFirst(tool_name="a", args={"x": [1]})
    assert rules.without_duplicates([once, exits, same, other]) == (once, exits, other)
