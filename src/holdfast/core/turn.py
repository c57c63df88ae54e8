"""What happens next in a run: the pure decision behind the loop.

First start, continuation after an approval and recovery after a crash are the same call on a longer history.
Nothing here awaits, reads a clock or creates an id; ``engine/runner.py`` executes the commands.
"""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import budgets, compaction, strict_schemas, tool_rules
from holdfast.core.budgets import Budget, Overrun
from holdfast.core.cancellation import denial_result
from holdfast.core.compaction import Trigger
from holdfast.core.json_depth import load_json
from holdfast.core.messages import (
    CallState,
    Decision,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    ToolCall,
    ToolReturn,
    decisions_by_call,
)
from holdfast.core.runs import Progress, RunFailure, StopReason
from holdfast.core.tools import HEARTBEAT

# Keys that older V1 loops added to every call; they are never the tool's own (wire-v1 §7.5).
STRIPPED_ARGUMENTS = (HEARTBEAT, "thinking")

_EXECUTED = (Outcome.FINISHED, Outcome.FAILED)


class Finish(StrEnum):
    """Why the model's answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class Policy(Struct, frozen=True, kw_only=True):
    """The rules of the whole run."""

    max_steps: int
    # Names of the tools on offer, in the order of attachment; client tools included.
    tools: tuple[str, ...] = ()
    rules: tuple[tool_rules.ToolRule, ...] = ()
    # Names of the tools whose calls wait for a person or for the client.
    held: frozenset[str] = frozenset()
    parallel: bool = False
    # How many tokens the model can take; 0: unknown, so the context is never compacted for being full.
    context_window: int = 0
    # The run only compacts the context; the model is not asked for an answer.
    only_compacts: bool = False
    # What the request may use; None: no limit.
    budget: Budget | None = None
    parameters: dict[str, dict[str, Any]] = {}
    # The model was given strict schemas, where it gives null for what it leaves out.
    is_strict: bool = False

    def properties(self, tool: str) -> dict[str, Any]:
        """The arguments that the tool has."""
        properties = self.parameters.get(tool, {}).get("properties", {})
        return properties if isinstance(properties, dict) else {}


class Turn(Struct, frozen=True, kw_only=True):
    """The facts that the decision is based on."""

    history: tuple[Message, ...]
    calls: tuple[OpenCall, ...] = ()
    progress: Progress = Progress()
    finish: Finish | None = None
    # The model's last answer was empty, so there is no row of it.
    is_answer_empty: bool = False
    # The run cannot continue after the last calls; it ends once they have their results.
    stop: StopReason | None = None
    # The run's input. It stays in the context until the model has answered it.
    input_ids: frozenset[str] = frozenset()
    # How often the provider has refused this question because it does not fit its window.
    overflows: int = 0
    # A compaction succeeded or failed since the model last answered or refused.
    is_compaction_done: bool = False
    # What the run has used so far, in tokens and in billionths of a US dollar (None: not known).
    tokens_used: int = 0
    cost: int | None = None


class AskModel(Struct, frozen=True):
    """Ask the model, offering these tools. ``nudge`` is a hidden message to the model that precedes the question."""

    allowed: tuple[str, ...]
    forced: bool = False
    nudge: str | None = None


class PlannedCall(Struct, frozen=True):
    """A call with the arguments that its tool gets."""

    call: ToolCall
    arguments: dict[str, Any]


class RunTools(Struct, frozen=True):
    """Run the ``planned`` calls; ``settled`` calls have their result already. With ``stop`` the run ends afterwards."""

    planned: tuple[PlannedCall, ...]
    settled: tuple[ToolReturn, ...]
    stop: StopReason | None = None


class RequestApproval(Struct, frozen=True):
    """Hold these calls for a person. No call of the same answer runs before the decision."""

    held: tuple[ToolCall, ...]
    automatic: tuple[ToolCall, ...]


class Compact(Struct, frozen=True):
    """Compact the context. With ``ending`` the run ends afterwards, for that reason."""

    trigger: Trigger
    ending: StopReason | None = None


class EndTurn(Struct, frozen=True):
    """End the run. ``failure`` and ``overrun`` say why it ends before its work is done."""

    reason: StopReason
    failure: RunFailure | None = None
    overrun: Overrun | None = None


Command = AskModel | RunTools | RequestApproval | Compact | EndTurn


def next_command(turn: Turn, policy: Policy) -> Command:
    """The next command, within the budget: a run that has used too much asks nothing and runs nothing more."""
    command = _decide(turn, policy)
    if policy.budget is None or isinstance(command, EndTurn | RequestApproval):
        return command
    overrun = budgets.find_overrun(policy.budget, turn.tokens_used, turn.cost)
    if overrun is None:
        return command
    if isinstance(command, Compact) and command.ending is not None:
        # The answer is complete. The next run compacts the context.
        return EndTurn(command.ending)
    return end_for_overrun(overrun)


def end_for_overrun(overrun: Overrun) -> EndTurn:
    """V1 has stop reasons for too many tokens and too many steps; too much time is reported as too many steps."""
    is_time = overrun.limit == budgets.MAX_SECONDS
    reason = StopReason.MAX_STEPS if is_time else StopReason.MAX_TOKENS_EXCEEDED
    return EndTurn(reason, overrun=overrun)


def _decide(turn: Turn, policy: Policy) -> Command:
    if policy.only_compacts:
        done = turn.is_compaction_done or not compaction.evictable_count(turn.history)
        return EndTurn(StopReason.END_TURN) if done else Compact(Trigger.REQUESTED)
    command = _decide_without_compaction(turn, policy)
    if turn.is_compaction_done or not isinstance(command, AskModel | EndTurn):
        return command
    if turn.overflows:
        return Compact(Trigger.OVERFLOW)
    window = policy.context_window
    new = compaction.count_unanswered(turn.history, turn.input_ids)
    if window and compaction.is_full(turn.history, turn.progress.context_tokens, window, new):
        return Compact(
            Trigger.FULL, ending=command.reason if isinstance(command, EndTurn) else None
        )
    return command


def _decide_without_compaction(turn: Turn, policy: Policy) -> Command:
    if turn.calls:
        return _after_calls(turn, policy)
    if turn.progress.ending is not None:
        return EndTurn(turn.progress.ending)
    if turn.stop is not None:
        return EndTurn(turn.stop)
    last = turn.history[-1] if turn.history else None
    if turn.is_answer_empty or (last is not None and last.role is Role.ASSISTANT):
        return _after_answer(turn, policy)
    if last is not None and last.role is Role.TOOL:
        return _after_results(last, turn, policy)
    return _ask(turn, policy)


def _after_calls(turn: Turn, policy: Policy) -> Command:
    """Calls without a result row: hold them, or run them."""
    decisions = decisions_by_call(turn.history)
    undecided = [
        item for item in turn.calls if _must_wait(item, policy) and item.call.id not in decisions
    ]
    if undecided:
        held = tuple(item.call for item in turn.calls if _must_wait(item, policy))
        automatic = tuple(item.call for item in turn.calls if not _must_wait(item, policy))
        return RequestApproval(held=held, automatic=automatic)
    return _run_tools(turn, policy, decisions)


def _must_wait(item: OpenCall, policy: Policy) -> bool:
    """A fresh call waits if its tool is held. Later changes of the rules do not affect it."""
    if item.state is CallState.FRESH:
        return item.call.name in policy.held
    return item.state is CallState.HELD


def _run_tools(turn: Turn, policy: Policy, decisions: dict[str, Decision]) -> RunTools:
    called = turn.progress.called
    allowed = tool_rules.allowed_tools(
        policy.rules, policy.tools, called, _last_output(turn.history)
    )
    planned: list[PlannedCall] = []
    settled: list[ToolReturn] = []
    stop: StopReason | None = None
    for item in turn.calls:
        result = item.result or _result_without_running(item, decisions.get(item.call.id))
        if result is None and item.state is not CallState.HELD:
            result = _refusal(item.call, policy, allowed.names)
        if result is not None:
            settled.append(result)
            continue
        arguments, problem = _final_arguments(
            _with_edited_arguments(item, decisions), policy, called
        )
        if problem is None:
            planned.append(PlannedCall(item.call, arguments))
        else:
            settled.append(_error_result(item.call, problem, Outcome.NOT_STARTED))
            stop = StopReason.INVALID_TOOL_CALL if "prefilled" in problem else stop
    return RunTools(tuple(planned), tuple(settled), stop)


def _with_edited_arguments(item: OpenCall, decisions: dict[str, Decision]) -> ToolCall:
    """The call with the arguments that a person gave it, if any."""
    decision = decisions.get(item.call.id)
    if decision is None or decision.arguments is None:
        return item.call
    return replace(item.call, arguments=json.dumps(decision.arguments))


def _result_without_running(item: OpenCall, decision: Decision | None) -> ToolReturn | None:
    """The outcome of a call that must not be run (again), or None if it must."""
    if item.state is CallState.STARTED:
        return _error_result(
            item.call,
            "The server stopped while this tool was running, so its outcome is unknown. "
            "It was not run again.",
            Outcome.UNKNOWN,
        )
    if decision is None or decision.approve:
        return None
    if decision.returned is not None:
        return decision.returned
    return denial_result(item.call, decision.reason)


def _refusal(call: ToolCall, policy: Policy, allowed: Sequence[str]) -> ToolReturn | None:
    if call.name not in policy.tools:
        return _error_result(call, f"Tool not found: {call.name}", Outcome.NOT_STARTED)
    if call.name not in allowed:
        text = tool_rules.constraint_error(policy.rules, call.name, allowed)
        return _error_result(call, text, Outcome.NOT_STARTED)
    return None


def _final_arguments(
    call: ToolCall, policy: Policy, called: Sequence[str]
) -> tuple[dict[str, Any], str | None]:
    """The arguments to run with, or a problem that is reported to the model."""
    try:
        arguments = load_json(call.arguments or "{}")
    except ValueError as error:
        return {}, f"The arguments of {call.name} are not valid JSON: {error}"
    if not isinstance(arguments, dict):
        return {}, f"The arguments of {call.name} must be a JSON object."
    for key in STRIPPED_ARGUMENTS:
        if key not in policy.properties(call.name):
            arguments.pop(key, None)
    if policy.is_strict:
        arguments = strict_schemas.drop_nulls(arguments, policy.parameters.get(call.name, {}))
    fixed = tool_rules.prefilled_arguments(policy.rules, called, call.name)
    unknown = sorted(set(fixed) - set(policy.properties(call.name)))
    if unknown:
        return {}, (
            f"Invalid prefilled tool arguments from tool rules (source={call.name}): "
            f"unknown argument names {unknown}"
        )
    return arguments | fixed, None


def _after_results(last: Message, turn: Turn, policy: Policy) -> Command:
    # Results of client tools have no name: they never end the loop (wire-v1 §6.4).
    ran = [item.name for item in last.tool_returns if item.name and item.outcome in _EXECUTED]
    missing = tool_rules.missing_required_tools(policy.rules, policy.tools, turn.progress.called)
    if any(tool_rules.exits_loop(policy.rules, name) for name in ran) and not missing:
        return EndTurn(StopReason.TOOL_RULE)
    return _ask(turn, policy)


def _after_answer(turn: Turn, policy: Policy) -> Command:
    """An answer without calls ends the turn, unless a rule still requires a tool."""
    missing = tool_rules.missing_required_tools(policy.rules, policy.tools, turn.progress.called)
    if missing and turn.progress.steps_taken < policy.max_steps:
        return _ask(turn, policy, nudge=_nudge_text(missing))
    if turn.finish is Finish.LENGTH:
        return EndTurn(StopReason.MAX_TOKENS_EXCEEDED)
    return EndTurn(StopReason.MAX_STEPS if missing else StopReason.END_TURN)


def _nudge_text(missing: Sequence[str]) -> str:
    return (
        "[This is an automated system message hidden from the user] ToolRuleViolated: "
        f"You must call {', '.join(missing)} at least once to exit the loop."
    )


def _ask(turn: Turn, policy: Policy, nudge: str | None = None) -> Command:
    if turn.progress.steps_taken >= policy.max_steps:
        return EndTurn(StopReason.MAX_STEPS)
    allowed = tool_rules.allowed_tools(
        policy.rules, policy.tools, turn.progress.called, _last_output(turn.history)
    )
    return AskModel(allowed.names, allowed.forced, nudge)


def _last_output(history: Sequence[Message]) -> str | None:
    for row in reversed(history):
        if row.role is Role.TOOL and row.tool_returns:
            return row.tool_returns[-1].text
    return None


def _error_result(call: ToolCall, text: str, outcome: Outcome) -> ToolReturn:
    return ToolReturn(call_id=call.id, name=call.name, outcome=outcome, content=(Text(text),))
