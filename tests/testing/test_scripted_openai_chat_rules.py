"""What OpenAI chat completions refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.openai_chat_rules import refusal

Message = dict[str, Any]

USER: Message = {"role": "user", "content": "hi"}


def call(call_id: str, name: str = "roll", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def call_message(*calls: dict[str, Any]) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "7"}


def check_request(*messages: Message, **fields: Any) -> str:
    return refusal({"model": "gpt", "messages": list(messages)} | fields) or "accepted"


def test_a_plain_question_is_accepted() -> None:
    assert check_request({"role": "system", "content": "Be brief."}, USER) == "accepted"


def test_answered_calls_are_accepted_in_any_order() -> None:
    history = [USER, call_message(call("a"), call("b")), result("b"), result("a"), USER]
    assert check_request(*history) == "accepted"


def test_arguments_that_are_no_json_are_accepted_as_long_as_they_are_text() -> None:
    assert check_request(USER, call_message(call("a", arguments="{not")), result("a")) == "accepted"


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([], "empty array"),
        ([{"role": "wizard", "content": "hi"}], "Invalid value: 'wizard'"),
        ([{"role": "user", "content": None}], "got null"),
        ([USER, {"role": "assistant", "content": None}], "got null"),
        ([USER, call_message()], "tool_calls': empty array"),
        ([USER, call_message(call("a"))], "did not have response messages: a"),
        ([USER, call_message(call("a")), USER, result("a")], "did not have response messages: a"),
        (
            [USER, call_message(call("a"), call("b")), result("a"), USER],
            "did not have response messages: b",
        ),
        ([USER, result("a")], "must be a response to a preceeding message with 'tool_calls'"),
        ([USER, call_message(call("a")), result("b")], "'tool_call_id' of 'b' not found"),
        (
            [USER, call_message(call("a")), result("a"), USER, result("a")],
            "must be a response to a preceeding message",
        ),
        ([USER, call_message(call("a"), call("a")), result("a")], "Duplicate value"),
        (
            [USER, call_message(call("a", arguments={})), result("a")],
            "arguments': expected a string",
        ),
        ([USER, call_message(call("a", name="no spaces")), result("a")], "does not match pattern"),
        ([USER, call_message(call("a", name="n" * 65)), result("a")], "maximum length 64"),
        ([USER, call_message(call("i" * 41)), result("i" * 41)], "maximum length 40"),
    ],
)
def test_a_broken_history_is_refused_with_its_reason(history: list[Message], reason: str) -> None:
    assert reason in check_request(*history)


def test_a_tool_with_a_bad_name_is_refused() -> None:
    tool = {"type": "function", "function": {"name": "roll.dice"}}
    assert "Invalid 'tools[0].function.name'" in check_request(USER, tools=[tool])


def test_a_request_without_a_model_or_messages_is_refused() -> None:
    assert refusal({"messages": [USER]}) == "you must provide a model parameter"
    assert refusal({"model": "gpt"}) == "Missing required parameter: 'messages'."


def test_a_model_that_takes_only_text_refuses_a_picture() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    shown = {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]}
    assert check_request(shown, model="gpt-4o") == "accepted"
    assert "image_url is only supported" in check_request(shown, model="gpt-3.5-turbo")
    assert check_request(USER, model="gpt-3.5-turbo") == "accepted"


def test_mistral_takes_an_empty_list_of_calls() -> None:
    history = [USER, {"role": "assistant", "content": "Hm.", "tool_calls": []}, USER]
    assert check_request(*history, model="mistral-large-latest") == "accepted"
    assert "empty array" in check_request(*history)
