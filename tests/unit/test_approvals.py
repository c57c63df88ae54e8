"""Whether an answer matches the held calls (wire-v1 §6.3, §6.6, §6.8)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.approvals import (
    clip_decision,
    match_decisions,
    pending_approval,
    was_given_before,
    without_heartbeat,
)
from holdfast.core.cancellation import DENIED_ON_CANCEL
from holdfast.core.messages import (
    CallState,
    Decision,
    Image,
    Message,
    OpenCall,
    Outcome,
    Role,
    Text,
    ToolCall,
    ToolReturn,
    VisiblePart,
)
from holdfast.errors import AnswerMismatch, CallerError, Conflict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = "message-1"


def open_call(call_id: str, state: CallState = CallState.HELD) -> OpenCall:
    return OpenCall(ToolCall(call_id, f"tool_{call_id}", "{}"), ROW, "step-1", state)


def allow(call_id: str) -> Decision:
    return Decision(call_id, approve=True)


def client_result(call_id: str, *parts: VisiblePart) -> Decision:
    result = ToolReturn(call_id, None, Outcome.FINISHED, parts or (Text("mine"),))
    return Decision(call_id, approve=False, returned=result)


def row(role: Role, **fields: Any) -> Message:
    values: dict[str, Any] = {"id": "message-0", "agent_id": "a", "thread_id": "a"} | fields
    return Message(role=role, created_at=NOW, **values)


def result_message(*call_ids: str) -> Message:
    items = tuple(ToolReturn(key, "t", Outcome.FINISHED, ()) for key in call_ids)
    return row(Role.TOOL, tool_returns=items)


def test_an_answer_covers_what_is_held_in_any_order_and_nothing_else() -> None:
    calls = [open_call("a"), open_call("b", CallState.READY), open_call("c")]
    assert match_decisions(calls, [allow("c"), allow("a")]) == (allow("c"), allow("a"))
    for wrong in ([allow("a")], [allow("a"), allow("b"), allow("c")], [allow("b")]):
        with pytest.raises(AnswerMismatch, match=r"Expected '\['a', 'c'\]'") as refused:
            match_decisions(calls, wrong)
        assert refused.value.pending_request_id == ROW
        assert refused.value.calls == (("a", "tool_a"), ("c", "tool_c"))


def test_an_empty_answer_is_refused() -> None:
    with pytest.raises(CallerError, match="does not contain any approvals"):
        match_decisions([open_call("a")], [])


def test_saying_the_same_twice_is_saying_it_once_and_contradiction_is_refused() -> None:
    assert match_decisions([open_call("a")], [allow("a"), allow("a")]) == (allow("a"),)
    with pytest.raises(AnswerMismatch):
        match_decisions([open_call("a")], [allow("a"), Decision("a", approve=False)])


def test_the_row_may_be_named_for_its_only_call() -> None:
    assert match_decisions(
        [open_call("a"), open_call("b", CallState.READY)], [client_result(ROW)]
    ) == (client_result("a"),)
    with pytest.raises(AnswerMismatch):
        match_decisions([open_call("a"), open_call("b")], [allow(ROW)])


def test_what_waits_is_named_with_its_tool() -> None:
    error = pending_approval([open_call("b", CallState.READY), open_call("a")])
    assert (error.pending_request_id, error.calls) == (ROW, (("a", "tool_a"),))


def test_an_answer_was_given_before_if_one_row_has_all_its_results() -> None:
    rows = [result_message("a", "b"), result_message("c")]
    assert was_given_before(rows, [allow("a"), allow("b")])
    assert was_given_before(rows, [allow("b")])
    assert not was_given_before(rows, [allow("a"), allow("c")])
    assert not was_given_before(rows, [allow("x")])
    assert not was_given_before([], [allow("a")])


def test_it_may_name_the_row_that_asked() -> None:
    asked = row(Role.APPROVAL, id=ROW, tool_calls=(ToolCall("a", "t", "{}"),))
    assert was_given_before([asked, result_message("a")], [allow(ROW)])


def test_what_a_cancel_denied_was_answered_by_nobody() -> None:
    denial = row(Role.APPROVAL, decisions=(Decision("a", approve=False, reason=DENIED_ON_CANCEL),))
    assert not was_given_before([denial, result_message("a")], [allow("a")])


@pytest.mark.parametrize(("window", "room"), [(1_000, 5_000), (10_000, 8_000)])
def test_a_clients_result_is_cut_to_what_the_window_bears(window: int, room: int) -> None:
    assert clip_decision(client_result("a", Text("x" * room)), window) == client_result(
        "a", Text("x" * room)
    )
    cut = clip_decision(client_result("a", Text("x" * (room + 7))), window)
    assert cut == client_result("a", Text("x" * room + "… [truncated 7 chars]"))
    assert clip_decision(allow("a"), window) == allow("a")


def test_its_parts_share_the_room_and_pictures_stay() -> None:
    picture = Image("image/png", "AAAA")
    cut = clip_decision(client_result("a", Text("x" * 4_000), picture, Text("y" * 4_000)), 0)
    short = Text("y" * 1_000 + "… [truncated 3000 chars]")
    assert cut == client_result("a", Text("x" * 4_000), picture, short)


def test_a_heartbeat_is_taken_out_of_the_arguments_unless_it_is_the_tools_own() -> None:
    call = ToolCall("a", "t", '{"x": "ü", "request_heartbeat": true}')
    assert json.loads(without_heartbeat(call, ["x"]).arguments) == {"x": "ü"}
    assert without_heartbeat(call, ["request_heartbeat"]) == call
    for arguments in (
        "",
        "{}",
        '{"x":"request_heartbeat"}',
        "request_heartbeat",
        '["request_heartbeat"]',
    ):
        assert without_heartbeat(ToolCall("a", "t", arguments), []).arguments == arguments


def test_answers_may_come_one_by_one_if_they_say_so() -> None:
    calls = [open_call("a"), open_call("b"), open_call("c")]
    assert match_decisions(calls, [allow("b")], partial=True) == (allow("b"),)
    before = {"b": allow("b")}
    with pytest.raises(AnswerMismatch, match=r"Expected '\['a', 'c'\]', but received '\['a'\]'"):
        match_decisions(calls, [allow("a")], before)
    assert match_decisions(calls, [allow("a"), client_result("c")], before) == (
        allow("a"),
        client_result("c"),
    )
    assert match_decisions(calls, [allow("b"), allow("a")], before, partial=True)
    with pytest.raises(AnswerMismatch):
        match_decisions(calls, [allow("x")], before, partial=True)
    assert pending_approval(calls, before).calls == (("a", "tool_a"), ("c", "tool_c"))


def test_a_contradicting_answer_is_refused_with_who_decided_first() -> None:
    first = Decision("a", approve=True, decided_by="Ada", decided_at=NOW)
    for other in (Decision("a", approve=False), client_result("a")):
        with pytest.raises(Conflict, match="a was approved by Ada at 2026-01-01"):
            match_decisions([open_call("a"), open_call("b")], [other], {"a": first}, partial=True)
