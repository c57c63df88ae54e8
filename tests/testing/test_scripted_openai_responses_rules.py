"""What OpenAI responses refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.openai_responses_rules import refusal

Item = dict[str, Any]

USER: Item = {"role": "user", "content": "hi"}
CALL: Item = {"type": "function_call", "call_id": "a", "name": "roll", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "a", "output": "7"}
REASONING: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID: Item = {"type": "message", "role": "assistant", "content": "hello"}


def check_request(*items: Item, **fields: Any) -> str:
    return refusal({"model": "gpt", "input": list(items)} | fields) or "accepted"


@pytest.mark.parametrize(
    "items",
    [
        [USER],
        [USER, SAID, USER],
        [USER, CALL, OUTPUT],
        [USER, REASONING, CALL, OUTPUT],
        [USER, REASONING, REASONING | {"id": "rs_2"}, SAID, USER],
    ],
)
def test_a_sound_input_is_accepted(items: list[Item]) -> None:
    assert check_request(*items) == "accepted"


def test_plain_text_is_accepted() -> None:
    assert refusal({"model": "gpt", "input": "hi"}) is None


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "One of 'input'"),
        ([{"role": "tool", "content": "hi"}], "Invalid value: 'tool'"),
        ([USER, CALL], "No tool output found for function call a."),
        ([USER, CALL, USER], "No tool output found for function call a."),
        ([USER, OUTPUT], "No tool call found for function call output with call_id a."),
        ([USER, OUTPUT, CALL], "No tool call found for function call output with call_id a."),
        ([USER, REASONING], "'rs_1' of type 'reasoning' was provided without its required"),
        ([USER, REASONING, USER], "'rs_1' of type 'reasoning' was provided without its required"),
        ([USER, CALL, REASONING, OUTPUT], "'rs_1' of type 'reasoning' was provided without"),
        ([USER, CALL | {"arguments": {}}, OUTPUT], "arguments': expected a string"),
        ([USER, CALL | {"name": "no spaces"}, OUTPUT], "does not match pattern"),
        ([USER, CALL | {"id": "call_1"}, OUTPUT], "Expected an ID that begins with 'fc'"),
        ([USER, SAID | {"id": "fc_1"}, USER], "Expected an ID that begins with 'msg'"),
        ([USER, CALL | {"call_id": "c" * 65}], "call_id': string too long"),
        ([USER, REASONING, REASONING, SAID], "Duplicate item found with id rs_1"),
    ],
)
def test_a_broken_input_is_refused_with_its_reason(items: list[Item], reason: str) -> None:
    assert reason in check_request(*items)


def test_an_output_may_answer_a_call_of_the_stored_history() -> None:
    assert check_request(OUTPUT, previous_response_id="resp_1") == "accepted"


def test_a_tool_with_a_bad_name_is_refused() -> None:
    tool = {"type": "function", "name": "roll.dice"}
    assert "Invalid 'tools[0].name'" in check_request(USER, tools=[tool])


def test_a_request_without_a_model_is_refused() -> None:
    assert refusal({"input": "hi"}) == "Missing required parameter: 'model'."


def test_thoughts_that_were_not_to_be_kept_come_back_whole() -> None:
    assert "Item with id 'rs_1' not found" in check_request(USER, REASONING, SAID, store=False)
    whole = REASONING | {"encrypted_content": "x"}
    assert check_request(USER, whole, SAID, store=False) == "accepted"
