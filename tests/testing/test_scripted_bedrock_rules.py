"""What Bedrock's Converse refuses, and what it does not."""

from typing import Any

import pytest

from holdfast.testing.wires.bedrock_rules import refusal

Message = dict[str, Any]

USER: Message = {"role": "user", "content": [{"text": "hi"}]}
SAID: Message = {"role": "assistant", "content": [{"text": "hello"}]}


def calling(*call_ids: str) -> Message:
    calls = [{"toolUse": {"toolUseId": one, "name": "roll", "input": {}}} for one in call_ids]
    return {"role": "assistant", "content": calls}


def returning(*call_ids: str) -> Message:
    results = [{"toolResult": {"toolUseId": one, "content": []}} for one in call_ids]
    return {"role": "user", "content": results}


@pytest.mark.parametrize(
    "history",
    [[USER], [USER, SAID, USER], [USER, calling("a", "b"), returning("b", "a"), SAID, USER]],
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
        ([USER, calling("a")], "Expected toolResult blocks at messages.2.content"),
        ([USER, calling("a"), USER], "for the following Ids: a"),
        ([USER, calling("a", "b"), returning("a")], "for the following Ids: b"),
        ([USER, SAID, returning("a")], "exceeds the number of toolUse blocks"),
        ([USER, calling("a b"), returning("a b")], "[a-zA-Z0-9_-]+"),
    ],
)
def test_a_broken_history_is_refused_with_its_reason(history: list[Message], reason: str) -> None:
    assert reason in str(refusal({"messages": history}))
