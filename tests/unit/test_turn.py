"""The decision what to do next, alone and in whole turns with random models."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import tool_rules as rules
from holdfast.core.budgets import Budget, Overrun
from holdfast.core.compaction import Trigger
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
    unanswered_calls,
)
from holdfast.core.runs import Progress, StopReason
from holdfast.core.turn import (
    AskModel,
    Compact,
    EndTurn,
    Finish,
    Policy,
    RequestApproval,
    RunTools,
    Turn,
    next_command,
)

# JSON that could be parsed, but not written by every part of the server; and some that cannot be parsed.
DEEP, DEEPER = ('{"sides": ' + "[" * levels + "]" * levels + "}" for levels in (300, 5_000))
NOW = datetime(2026, 1, 29, 20, 44, 4, tzinfo=UTC)
POLICY = Policy(
    max_steps=50,
    tools=("roll", "flip", "ask"),
    held=frozenset({"ask"}),
    parallel=True,
    parameters={"roll": {"properties": {"sides": {"type": "integer"}}}},
)


def row(role: Role, text: str = "", **fields: Any) -> Message:
    content = (Text(text),) if text else ()
    return Message(
        id=f"message-{fields.pop('id', 1)}",
        agent_id="agent-1",
        thread_id="agent-1",
        role=role,
        created_at=NOW,
        content=content,
        **fields,
    )


def call(name: str, number: int = 1, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=f"call_{number}", name=name, arguments=arguments)


def open_calls(*calls: ToolCall, state: CallState = CallState.FRESH) -> tuple[OpenCall, ...]:
    return tuple(OpenCall(item, "message-a", "step-1", state) for item in calls)


def result(item: ToolCall, text: str = "done", outcome: Outcome = Outcome.FINISHED) -> ToolReturn:
    return ToolReturn(call_id=item.id, name=item.name, outcome=outcome, content=(Text(text),))


SYSTEM = row(Role.SYSTEM, "You are.")
USER = row(Role.USER, "Hello")


def after_calls(*calls: ToolCall, **turn: Any) -> Turn:
    answer = row(Role.ASSISTANT, tool_calls=calls)
    return Turn(history=(SYSTEM, USER, answer), calls=open_calls(*calls), **turn)


def after_result(name: str, text: str = "done", **turn: Any) -> Turn:
    item = call(name)
    answer = row(Role.ASSISTANT, tool_calls=(item,))
    results = row(Role.TOOL, tool_returns=(result(item, text),))
    progress = Progress(steps_taken=1, called=(name,))
    return Turn(history=(SYSTEM, USER, answer, results), progress=progress, **turn)


def test_a_user_message_is_put_to_the_model() -> None:
    assert next_command(Turn(history=(SYSTEM, USER)), POLICY) == AskModel(POLICY.tools)


def test_an_answer_without_calls_ends_the_turn() -> None:
    turn = Turn(history=(SYSTEM, USER, row(Role.ASSISTANT, "Hi")), finish=Finish.STOP)
    assert next_command(turn, POLICY) == EndTurn(StopReason.END_TURN)


def test_an_answer_cut_by_the_token_limit_says_so() -> None:
    turn = Turn(history=(SYSTEM, USER, row(Role.ASSISTANT, "Hi")), finish=Finish.LENGTH)
    assert next_command(turn, POLICY) == EndTurn(StopReason.MAX_TOKENS_EXCEEDED)


def test_calls_are_run_with_their_arguments() -> None:
    turn = after_calls(call("roll", 1, '{"sides": 6, "request_heartbeat": true}'), call("flip", 2))
    command = next_command(turn, POLICY)
    assert isinstance(command, RunTools)
    assert [item.arguments for item in command.planned] == [{"sides": 6}, {}]


def test_one_held_call_holds_all_calls_of_the_answer() -> None:
    dice, question = call("roll", 1), call("ask", 2)
    command = next_command(after_calls(dice, question), POLICY)
    assert command == RequestApproval(held=(question,), automatic=(dice,))


def held_turn(*decisions: Decision) -> Turn:
    dice, question = call("roll", 1), call("ask", 2)
    answer = row(Role.ASSISTANT, tool_calls=(dice,))
    approval = row(Role.APPROVAL, tool_calls=(question,))
    response = row(Role.APPROVAL, decisions=decisions)
    calls = open_calls(dice, state=CallState.READY) + open_calls(question, state=CallState.HELD)
    return Turn(history=(SYSTEM, USER, answer, approval, response), calls=calls)


def test_an_approval_sets_all_calls_going() -> None:
    command = next_command(held_turn(Decision(call_id="call_2", approve=True)), POLICY)
    assert isinstance(command, RunTools)
    assert [item.call.name for item in command.planned] == ["roll", "ask"]


def test_a_denial_is_the_calls_result_and_its_sibling_runs() -> None:
    decision = Decision(call_id="call_2", approve=False, reason="no")
    command = next_command(held_turn(decision), POLICY)
    assert isinstance(command, RunTools)
    assert [item.call.name for item in command.planned] == ["roll"]
    assert command.settled[0].outcome is Outcome.DENIED
    assert command.settled[0].text == "Error: request to call tool denied. User reason: no"


def test_a_result_from_the_client_is_taken_as_it_is() -> None:
    given = ToolReturn("call_2", "ask", Outcome.FINISHED, (Text("42"),))
    decision = Decision(call_id="call_2", approve=False, returned=given)
    command = next_command(held_turn(decision), POLICY)
    assert isinstance(command, RunTools)
    assert command.settled == (given,)


def test_a_rule_added_while_calls_wait_does_not_hold_their_siblings_too() -> None:
    stricter = replace(POLICY, held=frozenset({"ask", "roll"}))
    command = next_command(held_turn(Decision(call_id="call_2", approve=True)), stricter)
    assert isinstance(command, RunTools)
    assert len(command.planned) == 2


def test_a_call_that_was_running_when_the_server_died_is_not_run_again() -> None:
    dice = call("roll")
    turn = replace(after_calls(dice), calls=open_calls(dice, state=CallState.STARTED))
    command = next_command(turn, POLICY)
    assert isinstance(command, RunTools)
    assert command.planned == ()
    assert command.settled[0].outcome is Outcome.UNKNOWN


def test_a_settled_call_keeps_its_result_and_its_sibling_runs() -> None:
    dice, coin = call("roll", 1), call("flip", 2)
    settled = OpenCall(dice, "message-a", "step-1", CallState.SETTLED, result(dice, "6"))
    turn = replace(after_calls(dice, coin), calls=(settled, *open_calls(coin)))
    command = next_command(turn, POLICY)
    assert isinstance(command, RunTools)
    assert [item.call for item in command.planned] == [coin]
    assert command.settled == (result(dice, "6"),)


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '"text"', "12", DEEP, DEEPER])
def test_arguments_that_are_no_object_are_an_error_result_for_the_model(arguments: str) -> None:
    command = next_command(after_calls(call("roll", 1, arguments)), POLICY)
    assert isinstance(command, RunTools)
    assert command.planned == ()
    assert command.settled[0].outcome is Outcome.NOT_STARTED
    assert command.stop is None


def test_an_unknown_tool_is_an_error_result_for_the_model() -> None:
    command = next_command(after_calls(call("fly")), POLICY)
    assert isinstance(command, RunTools)
    assert "Tool not found" in command.settled[0].text


def test_results_are_put_to_the_model() -> None:
    assert next_command(after_result("roll"), POLICY) == AskModel(POLICY.tools)


@pytest.mark.wire(145)
def test_the_last_step_ends_the_turn_although_a_tool_was_called() -> None:
    policy = replace(POLICY, max_steps=1)
    assert next_command(after_result("roll"), policy) == EndTurn(StopReason.MAX_STEPS)


def test_an_exit_tool_ends_the_turn() -> None:
    policy = replace(POLICY, rules=(rules.ExitLoop(tool_name="roll"),))
    assert next_command(after_result("roll"), policy) == EndTurn(StopReason.TOOL_RULE)


def test_an_exit_tool_waits_for_required_tools() -> None:
    both = (rules.ExitLoop(tool_name="roll"), rules.RequiredBeforeExit(tool_name="flip"))
    assert isinstance(next_command(after_result("roll"), replace(POLICY, rules=both)), AskModel)


def test_an_answer_without_a_required_tool_is_nudged() -> None:
    policy = replace(POLICY, rules=(rules.RequiredBeforeExit(tool_name="flip"),))
    turn = Turn(history=(SYSTEM, USER, row(Role.ASSISTANT, "Hi")), finish=Finish.STOP)
    command = next_command(turn, policy)
    assert isinstance(command, AskModel)
    assert command.nudge is not None
    assert "You must call flip at least once" in command.nudge


def test_a_nudge_stops_at_the_last_step() -> None:
    policy = replace(POLICY, max_steps=1, rules=(rules.RequiredBeforeExit(tool_name="flip"),))
    answer = row(Role.ASSISTANT, "Hi")
    turn = Turn(history=(SYSTEM, USER, answer), progress=Progress(steps_taken=1))
    assert next_command(turn, policy) == EndTurn(StopReason.MAX_STEPS)


def test_a_model_with_nothing_to_add_ends_the_turn() -> None:
    assert next_command(after_result("roll", is_answer_empty=True), POLICY) == EndTurn(
        StopReason.END_TURN
    )


def test_prefilled_arguments_win_over_the_models() -> None:
    policy = replace(POLICY, rules=(rules.RunFirst(tool_name="roll", args={"sides": 20}),))
    command = next_command(after_calls(call("roll", 1, '{"sides": 6}')), policy)
    assert isinstance(command, RunTools)
    assert command.planned[0].arguments == {"sides": 20}


def test_prefilled_arguments_that_the_tool_does_not_have_end_the_run() -> None:
    policy = replace(POLICY, rules=(rules.RunFirst(tool_name="roll", args={"edges": 20}),))
    command = next_command(after_calls(call("roll")), policy)
    assert isinstance(command, RunTools)
    assert command.stop is StopReason.INVALID_TOOL_CALL
    assert "Invalid prefilled tool arguments" in command.settled[0].text


@pytest.mark.wire(144)
def test_a_tool_outside_the_rules_is_refused_and_the_turn_goes_on() -> None:
    policy = replace(POLICY, rules=(rules.RunFirst(tool_name="flip"),))
    command = next_command(after_calls(call("roll")), policy)
    assert isinstance(command, RunTools)
    assert command.planned == ()
    assert "[ToolConstraintError] Cannot call roll" in command.settled[0].text


# --- a whole turn against random models --------------------------------------------------------


class Play:
    """A driver that does what the engine does on in-memory lists, and checks the invariants at each step."""

    def __init__(self, policy: Policy, data: st.DataObject) -> None:
        self.policy = policy
        self.data = data
        self.turn = Turn(history=(SYSTEM, USER))
        self.outcomes: dict[str, list[Outcome]] = {}
        self.numbers = 0

    def run(self) -> StopReason:
        for _ in range(4 * self.policy.max_steps + 8):
            command = next_command(self.turn, self.policy)
            match command:
                case EndTurn(reason=reason):
                    return reason
                case AskModel():
                    self.ask(command)
                case RunTools():
                    self.run_tools(command)
                case RequestApproval():
                    self.decide(command)
        raise AssertionError("The turn did not end.")

    def ask(self, command: AskModel) -> None:
        assert unanswered_calls(self.turn.history) == []
        assert set(command.allowed) <= set(self.policy.tools)
        names = self.data.draw(st.lists(st.sampled_from([*self.policy.tools, "fly"]), max_size=3))
        calls = tuple(self.new_call(name) for name in names)
        answer = row(Role.ASSISTANT, "" if calls else "Hi", tool_calls=calls)
        progress = self.turn.progress
        progress = replace(progress, steps_taken=progress.steps_taken + 1)
        history = (*self.turn.history, answer)
        self.turn = Turn(history=history, calls=open_calls(*calls), progress=progress)

    def new_call(self, name: str) -> ToolCall:
        self.numbers += 1
        arguments = self.data.draw(st.sampled_from(["{}", '{"sides": 6}', "{broken", "[]"]))
        return call(name, self.numbers, arguments)

    def run_tools(self, command: RunTools) -> None:
        results = [
            *command.settled,
            *(result(item.call, outcome=self.data.draw(ran)) for item in command.planned),
        ]
        for item in results:
            self.outcomes.setdefault(item.call_id, []).append(item.outcome)
        called = tuple(item.call.name for item in command.planned)
        progress = replace(self.turn.progress, called=self.turn.progress.called + called)
        tool_row = row(Role.TOOL, tool_returns=tuple(results))
        self.turn = Turn(
            history=(*self.turn.history, tool_row), progress=progress, stop=command.stop
        )

    def decide(self, command: RequestApproval) -> None:
        held = {item.id for item in command.held}
        calls = tuple(
            replace(item, state=CallState.HELD if item.call.id in held else CallState.READY)
            for item in self.turn.calls
        )
        decisions = tuple(
            Decision(call_id=item.id, approve=self.data.draw(st.booleans()))
            for item in command.held
        )
        response = row(Role.APPROVAL, decisions=decisions)
        self.turn = replace(self.turn, history=(*self.turn.history, response), calls=calls)


SMALL_BUDGET = replace(POLICY, budget=Budget(total_tokens=100))


def test_a_run_over_its_budget_neither_asks_the_model_nor_runs_tools() -> None:
    overrun = Overrun("max_total_tokens", 100, 101)
    end = EndTurn(StopReason.MAX_TOKENS_EXCEEDED, overrun=overrun)
    assert next_command(after_result("roll", tokens_used=101), SMALL_BUDGET) == end
    assert next_command(after_calls(call("roll"), tokens_used=101), SMALL_BUDGET) == end


def test_a_run_within_its_budget_goes_on() -> None:
    assert isinstance(next_command(after_result("roll", tokens_used=100), SMALL_BUDGET), AskModel)


def test_a_run_over_its_budget_whose_answer_is_complete_ends_as_usual() -> None:
    turn = Turn(history=(row(Role.USER), row(Role.ASSISTANT, "Done")), tokens_used=101)
    assert next_command(turn, SMALL_BUDGET) == EndTurn(StopReason.END_TURN)


def test_a_run_over_its_budget_leaves_a_full_context_to_the_next_run() -> None:
    turn = Turn(
        history=(row(Role.SYSTEM), row(Role.USER), row(Role.ASSISTANT, "Done")),
        progress=Progress(context_tokens=95),
        tokens_used=101,
    )
    policy = replace(SMALL_BUDGET, context_window=100)
    assert next_command(turn, replace(policy, budget=None)) == Compact(
        Trigger.FULL, StopReason.END_TURN
    )
    assert next_command(turn, policy) == EndTurn(StopReason.END_TURN)


def test_a_run_over_its_budget_may_still_ask_a_person() -> None:
    turn = after_calls(call("ask"), tokens_used=101)
    assert isinstance(next_command(turn, SMALL_BUDGET), RequestApproval)


ran = st.sampled_from([Outcome.FINISHED, Outcome.FAILED])
some_rules = st.lists(
    st.sampled_from(
        [
            rules.RunFirst(tool_name="roll"),
            rules.ExitLoop(tool_name="flip"),
            rules.RequiredBeforeExit(tool_name="flip"),
            rules.MaxCountPerStep(tool_name="roll", max_count_limit=2),
            rules.ConstrainChildTools(tool_name="roll", children=("flip",)),
            rules.ParentLastTool(tool_name="flip", children=("ask",)),
            rules.Conditional(tool_name="roll", child_output_mapping={"done": "flip"}),
            rules.RequiresApproval(tool_name="ask"),
        ]
    ),
    max_size=4,
)


@given(st.data(), some_rules, st.integers(1, 6))
def test_every_turn_ends_with_one_outcome_per_call_and_a_valid_history(
    data: st.DataObject, given_rules: list[rules.ToolRule], max_steps: int
) -> None:
    play = Play(replace(POLICY, rules=tuple(given_rules), max_steps=max_steps), data)
    play.run()
    asked = [item.id for message in play.turn.history for item in message.tool_calls]
    assert {key: len(found) for key, found in play.outcomes.items()} == dict.fromkeys(asked, 1)
    assert unanswered_calls(play.turn.history) == []
    assert play.turn.progress.steps_taken <= max_steps
