"""What Bedrock's Converse refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.bedrock_rules import refusal

Message = dict[str, Any]

USER: Message = {"role": "user", "content": [{"text": "hi"}]}
SAID: Message = {"role": "assistant", "content": [{"text": "hello"}]}


def call_message(*call_ids: str) -> Message:
    calls = [{"toolUse": {"toolUseId": one, "name": "roll", "input": {}}} for one in call_ids]
    return {"role": "assistant", "content": calls}


def result_message(*call_ids: str) -> Message:
    results = [{"toolResult": {"toolUseId": one, "content": []}} for one in call_ids]
    return {"role": "user", "content": results}


@pytest.mark.parametrize(
    "history",
    [
        [USER],
        [USER, SAID, USER],
        [USER, call_message("a", "b"), result_message("b", "a"), SAID, USER],
    ],
)
def test_a_sound_history_is_accepted(history: list[Message]) -> None:
    assert refusal({"messages": history}) is None


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([], "must start with a user message"),
        ([SAID, USER], "must start with a user message"),
        ([USER, USER], "must alternate between user and assistant roles"),
        ([USER | {"content": []}], "messages.0 is empty"),
        ([{"role": "user", "content": [{"text": " "}]}], "messages.0.content.0 is blank"),
        ([USER, call_message("a")], "Expected toolResult blocks at messages.2.content"),
        ([USER, call_message("a"), USER], "for the following Ids: a"),
        ([USER, call_message("a", "b"), result_message("a")], "for the following Ids: b"),
        ([USER, SAID, result_message("a")], "exceeds the number of toolUse blocks"),
        ([USER, call_message("a b"), result_message("a b")], "[a-zA-Z0-9_-]+"),
    ],
)
def test_a_broken_history_is_refused_with_its_reason(history: list[Message], reason: str) -> None:
    assert reason in str(refusal({"messages": history}))
