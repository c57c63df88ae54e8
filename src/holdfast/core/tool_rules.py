"""The tool rules of an agent, and which tools they allow the model to call next (wire-v1 §3.12, §7.6).

Rules depend only on the tools called in this request, in order, and on the last one's output.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.core.deadlines import OnTimeout
from holdfast.core.json_depth import load_json
from holdfast.core.tools import Tool, ToolKind


class RunFirst(Struct, frozen=True, tag="run_first", tag_field="type", kw_only=True):
    tool_name: str
    args: dict[str, Any] | None = None
    prompt_template: str | None = None


class ChildArguments(Struct, frozen=True, kw_only=True):
    name: str
    args: dict[str, Any] | None = None


class ConstrainChildTools(
    Struct, frozen=True, tag="constrain_child_tools", tag_field="type", kw_only=True
):
    tool_name: str
    children: tuple[str, ...]
    child_arg_nodes: tuple[ChildArguments, ...] | None = None
    prompt_template: str | None = None


class ParentLastTool(Struct, frozen=True, tag="parent_last_tool", tag_field="type", kw_only=True):
    tool_name: str
    children: tuple[str, ...]
    prompt_template: str | None = None


class Conditional(Struct, frozen=True, tag="conditional", tag_field="type", kw_only=True):
    tool_name: str
    child_output_mapping: dict[str, str]
    default_child: str | None = None
    require_output_mapping: bool = False
    prompt_template: str | None = None


class MaxCountPerStep(
    Struct, frozen=True, tag="max_count_per_step", tag_field="type", kw_only=True
):
    tool_name: str
    max_count_limit: int
    prompt_template: str | None = None


class ContinueLoop(Struct, frozen=True, tag="continue_loop", tag_field="type", kw_only=True):
    tool_name: str
    prompt_template: str | None = None


class ExitLoop(Struct, frozen=True, tag="exit_loop", tag_field="type", kw_only=True):
    tool_name: str
    prompt_template: str | None = None


class RequiredBeforeExit(
    Struct, frozen=True, tag="required_before_exit", tag_field="type", kw_only=True
):
    tool_name: str
    prompt_template: str | None = None


class RequiresApproval(
    Struct, frozen=True, tag="requires_approval", tag_field="type", kw_only=True
):
    """Without a timeout a call waits indefinitely. Unset timeout fields are left out of the JSON, since V1 lacks them."""

    tool_name: str
    prompt_template: str | None = None
    approval_timeout_seconds: float | UnsetType = UNSET
    approval_on_timeout: OnTimeout | UnsetType = UNSET


ToolRule = (
    RunFirst
    | ConstrainChildTools
    | ParentLastTool
    | Conditional
    | MaxCountPerStep
    | ContinueLoop
    | ExitLoop
    | RequiredBeforeExit
    | RequiresApproval
)

# Rules about what may follow the last call.
_SEQUENCING = (ConstrainChildTools, ParentLastTool, Conditional)

# V1's rules for its own tools: a call of these ends the turn, by their name; after one of these kinds it goes on.
_FINAL_TOOLS = frozenset({"send_message", "send_message_to_agent_async", "memory_finish_edits"})
_BASE_KINDS = frozenset({ToolKind.CORE, ToolKind.MEMORY, ToolKind.SLEEPTIME})


class AllowedTools(Struct, frozen=True):
    """The tools that may be called, and whether the model must call one of them."""

    names: tuple[str, ...]
    forced: bool = False


def allowed_tools(
    rules: Sequence[ToolRule],
    attached: Sequence[str],
    called: Sequence[str],
    last_output: str | None = None,
) -> AllowedTools:
    """The tools that may be called next. If the rules exclude every tool, all are allowed."""
    first = {rule.tool_name for rule in rules if isinstance(rule, RunFirst)}
    if first and not called:
        names = tuple(name for name in attached if name in first)
        return AllowedTools(names, forced=True) if names else AllowedTools(tuple(attached))
    permitted = set(attached)
    for rule in rules:
        permitted &= _permitted_tools(rule, attached, called, last_output)
    names = tuple(name for name in attached if name in permitted)
    return AllowedTools(
        names or tuple(attached), forced=bool(names) and _forces_call(rules, called)
    )


def _permitted_tools(
    rule: ToolRule, attached: Sequence[str], called: Sequence[str], last_output: str | None
) -> set[str]:
    everything = set(attached)
    follows = bool(called) and called[-1] == rule.tool_name
    match rule:
        case ConstrainChildTools():
            return set(rule.children) if follows else everything
        case ParentLastTool():
            return set(rule.children) if follows else everything - set(rule.children)
        case Conditional():
            return _choose_by_output(rule, last_output, everything) if follows else everything
        case MaxCountPerStep():
            spent = called.count(rule.tool_name) >= rule.max_count_limit
            return everything - {rule.tool_name} if spent else everything
        case _:
            return everything


def _choose_by_output(rule: Conditional, output: str | None, everything: set[str]) -> set[str]:
    for value, child in rule.child_output_mapping.items():
        if output is not None and _outputs_match(value, output):
            return {child}
    if rule.default_child is not None:
        return {rule.default_child}
    return set() if rule.require_output_mapping else everything


def _outputs_match(expected: str, output: str) -> bool:
    """Whether both are equal as text or as JSON values, so that the key ``True`` matches the output ``true``."""
    return expected.strip() == output.strip() or _as_value(expected) == _as_value(output)


def _as_value(text: str) -> object:
    text = {"True": "true", "False": "false", "None": "null"}.get(text.strip(), text)
    try:
        return load_json(text)
    except ValueError:
        return text


def _forces_call(rules: Sequence[ToolRule], called: Sequence[str]) -> bool:
    return bool(called) and any(
        isinstance(rule, _SEQUENCING) and rule.tool_name == called[-1] for rule in rules
    )


def exits_loop(rules: Iterable[ToolRule], name: str) -> bool:
    return any(isinstance(rule, ExitLoop) and rule.tool_name == name for rule in rules)


def needs_approval(rules: Iterable[ToolRule], name: str) -> bool:
    return any(isinstance(rule, RequiresApproval) and rule.tool_name == name for rule in rules)


def without_duplicates(rules: Iterable[ToolRule]) -> tuple[ToolRule, ...]:
    """The rules in their order, of equal ones the first. ``_identity`` says which are equal."""
    unique: dict[tuple[object, ...], ToolRule] = {}
    for rule in rules:
        unique.setdefault(_identity(rule), rule)
    return tuple(unique.values())


def _identity(rule: ToolRule) -> tuple[object, ...]:
    """What two rules have in common if they are equal (wire-v1 §3.12): prompt templates, prefilled arguments and time
    limits do not count."""
    detail: object = None
    match rule:
        case ConstrainChildTools() | ParentLastTool():
            detail = frozenset(rule.children)
        case Conditional():
            mapping = frozenset(rule.child_output_mapping.items())
            detail = (rule.default_child, mapping, rule.require_output_mapping)
        case MaxCountPerStep():
            detail = rule.max_count_limit
    return type(rule), rule.tool_name, detail


def with_base_rules(rules: Sequence[ToolRule], attached: Iterable[Tool]) -> tuple[ToolRule, ...]:
    """The rules, with those added that V1 gives its own tools (wire-v1 §2.2.1)."""
    added: list[ToolRule] = []
    for tool in attached:
        if tool.name in _FINAL_TOOLS:
            added.append(ExitLoop(tool_name=tool.name))
        elif tool.kind in _BASE_KINDS:
            added.append(ContinueLoop(tool_name=tool.name))
    return without_duplicates((*rules, *added))


def rename_tool(rules: Iterable[ToolRule], old: str, new: str) -> tuple[ToolRule, ...]:
    """The rules with the tool's new name, wherever they name it."""
    return without_duplicates(_rename_in_rule(rule, old, new) for rule in rules)


def _rename_in_rule(rule: ToolRule, old: str, new: str) -> ToolRule:
    def rename(name: str) -> str:
        return new if name == old else name

    changes: dict[str, Any] = {"tool_name": rename(rule.tool_name)}
    match rule:
        case ConstrainChildTools():
            nodes = rule.child_arg_nodes
            changes["children"] = tuple(map(rename, rule.children))
            changes["child_arg_nodes"] = nodes and tuple(
                replace(node, name=rename(node.name)) for node in nodes
            )
        case ParentLastTool():
            changes["children"] = tuple(map(rename, rule.children))
        case Conditional():
            mapping = rule.child_output_mapping
            changes["child_output_mapping"] = {key: rename(name) for key, name in mapping.items()}
            changes["default_child"] = rule.default_child and rename(rule.default_child)
    return replace(rule, **changes)


def with_approvals(rules: Sequence[ToolRule], names: Iterable[str]) -> tuple[ToolRule, ...]:
    """The rules, with an approval rule added for each named tool that has none."""
    added = [RequiresApproval(tool_name=name) for name in names if not needs_approval(rules, name)]
    return (*rules, *added)


def without_approval(rules: Iterable[ToolRule], name: str) -> tuple[ToolRule, ...]:
    return tuple(
        rule
        for rule in rules
        if not (isinstance(rule, RequiresApproval) and rule.tool_name == name)
    )


def missing_required_tools(
    rules: Iterable[ToolRule], attached: Sequence[str], called: Sequence[str]
) -> tuple[str, ...]:
    """Attached tools that must still be called before the turn may end."""
    return tuple(
        rule.tool_name
        for rule in rules
        if isinstance(rule, RequiredBeforeExit)
        and rule.tool_name in attached
        and rule.tool_name not in called
    )


def allows_parallel(rules: Iterable[ToolRule]) -> bool:
    """Whether an answer may have several calls: only without rules about their order (wire-v1 §7.7)."""
    return all(isinstance(rule, RequiresApproval) for rule in rules)


def prefilled_arguments(
    rules: Iterable[ToolRule], called: Sequence[str], name: str
) -> dict[str, Any]:
    """Arguments that a rule sets for the next call of ``name``; they override the model's."""
    fixed: dict[str, Any] = {}
    for rule in rules:
        if isinstance(rule, RunFirst) and not called and rule.tool_name == name:
            fixed.update(rule.args or {})
        if isinstance(rule, ConstrainChildTools) and called and called[-1] == rule.tool_name:
            for node in rule.child_arg_nodes or ():
                if node.name == name:
                    fixed.update(node.args or {})
    return fixed


def describe(rule: ToolRule) -> str | None:
    """The rule as a sentence for the model; None if the model does not need to know it."""
    match rule:
        case RunFirst():
            return f"{rule.tool_name} must be called first"
        case ConstrainChildTools():
            return f"after {rule.tool_name}, call one of: {', '.join(rule.children)}"
        case ParentLastTool():
            return f"{', '.join(rule.children)} may only be called right after {rule.tool_name}"
        case Conditional():
            return f"the output of {rule.tool_name} decides which tool must be called next"
        case MaxCountPerStep():
            return (
                f"{rule.tool_name} may be called at most {rule.max_count_limit} times in one turn"
            )
        case ExitLoop():
            return f"{rule.tool_name} ends your turn when called"
        case RequiredBeforeExit():
            return f"{rule.tool_name} must be called at least once before you end your turn"
        case ContinueLoop() | RequiresApproval():
            return None


def constraint_error(rules: Iterable[ToolRule], name: str, allowed: Sequence[str]) -> str:
    """The error for the model when it calls a tool that is not allowed now (wire-v1 §7.6)."""
    hints = [text for rule in rules if (text := describe(rule)) and _concerns(rule, name)]
    hint = f" Hint: {'; '.join(hints)}." if hints else ""
    return (
        f"[ToolConstraintError] Cannot call {name}, valid tools include: {sorted(allowed)}.{hint}"
    )


def _concerns(rule: ToolRule, name: str) -> bool:
    children = getattr(rule, "children", ()) or ()
    return rule.tool_name == name or name in children or isinstance(rule, RunFirst)


def render(rules: Iterable[ToolRule]) -> str:
    """The rules as a section of the system prompt; empty if there is nothing to describe."""
    lines = [text for rule in rules if (text := describe(rule))]
    if not lines:
        return ""
    body = "\n".join(f"<tool_rule>\n{line}\n</tool_rule>" for line in lines)
    return (
        "<tool_usage_rules>\n"
        "Your tools follow these rules; a call that breaks one is refused:\n\n"
        f"{body}\n</tool_usage_rules>"
    )
