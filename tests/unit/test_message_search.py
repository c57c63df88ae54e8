"""By which text a message is found, and which messages are not found at all."""

import json
from typing import Any

import pytest
from tests.support.values import Make

from holdfast.core.message_search import SEARCH_TOOL, searchable_text
from holdfast.core.messages import (
    Image,
    Message,
    Outcome,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)


def message(make: Make, role: Role = Role.ASSISTANT, text: str = "", **fields: Any) -> Message:
    content = (Text(text),) if text else ()
    given: dict[str, Any] = {"role": role, "content": content} | fields
    return make.message(make.thread(make.agent()), **given)


def send(text: str) -> ToolCall:
    return ToolCall("call_1", "send_message", json.dumps({"message": text}))


@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
def test_a_message_is_found_by_its_texts_alone(make: Make, role: Role) -> None:
    content = (Thinking("Well."), Text("One."), Image("image/png", "AAAA"), Text("Two."))

    assert searchable_text(message(make, role, content=content)) == "One.\nTwo."


def test_a_text_that_is_sent_with_a_tool_counts(make: Make) -> None:
    calls = (send("Hello."), ToolCall("call_2", "other", '{"message": "no"}'))

    assert searchable_text(message(make, tool_calls=calls)) == "Hello."
    assert searchable_text(message(make, text="Hm.", tool_calls=calls)) == "Hm.\nHello."


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"message": 5}', "null", '{"text": "x"}'])
def test_a_broken_call_says_nothing(make: Make, arguments: str) -> None:
    call = ToolCall("call_1", "send_message", arguments)

    assert not searchable_text(message(make, tool_calls=(call,)))


def test_a_summary_is_found_by_what_it_says_not_by_its_form(make: Make) -> None:
    packed = {
        "type": "system_alert",
        "message": "Note: hidden. The following is a summary of the previous messages:\n They met.",
        "time": "now",
    }

    assert searchable_text(message(make, Role.SUMMARY, json.dumps(packed))) == "They met."
    assert searchable_text(message(make, Role.SUMMARY, "They met.")) == "They met."


def test_what_was_not_said_is_not_found(make: Make) -> None:
    returned = ToolReturn("call_1", "f", Outcome.FINISHED, (Text("x"),))
    search = ToolCall("call_1", SEARCH_TOOL, '{"query": "x"}')
    rows = [
        message(make, Role.SYSTEM, "x"),
        message(make, Role.APPROVAL, "x"),
        message(make, Role.TOOL, tool_returns=(returned,)),
        message(make, Role.USER, "x", hidden=True),
        message(make, Role.ASSISTANT, "x", tool_calls=(search,)),
        message(make, Role.USER),
    ]

    assert [row.role for row in rows if searchable_text(row)] == []
