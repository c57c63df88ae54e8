"""What a record tells of a request, whichever wire it came by."""

from typing import Any

import pytest

from holdfast.core.summaries import render_transcript
from holdfast.testing import ProviderRequest
from holdfast.testing.wires.wire import WireName


def request(wire: WireName, headers: dict[str, str] | None = None, **body: Any) -> ProviderRequest:
    return ProviderRequest(wire, "/", headers or {}, body, received_at=0.0)


@pytest.mark.parametrize(
    "asked",
    [
        request("openai-chat", messages=[{"role": "user", "content": "hi"}]),
        request(
            "openai-chat",
            messages=[
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": "well"},
            ],
        ),
        request("openai-responses", input="hi"),
        request(
            "openai-responses",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        ),
        request(
            "anthropic",
            messages=[
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
            ],
        ),
        request(
            "google",
            contents=[
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f"}}]},
            ],
        ),
    ],
)
def test_the_users_last_words_are_found(asked: ProviderRequest) -> None:
    assert asked.user_text == "hi"


def test_nothing_said_is_nothing() -> None:
    assert request("anthropic").user_text == ""
    assert request("anthropic").messages == []


def test_the_key_is_found_in_every_header() -> None:
    assert request("anthropic", {"x-api-key": "k"}).api_key == "k"
    assert request("openai-chat", {"authorization": "Bearer k"}).api_key == "k"
    assert request("google", {"x-goog-api-key": "k"}).api_key == "k"


def test_tools_are_named_alike_on_every_wire() -> None:
    nested = request("openai-chat", tools=[{"type": "function", "function": {"name": "roll"}}])
    flat = request("anthropic", tools=[{"name": "roll"}])
    declared = request("google", tools=[{"functionDeclarations": [{"name": "roll"}]}])
    assert nested.tool_names == flat.tool_names == declared.tool_names == ["roll"]


def test_a_question_for_a_summary_is_told_apart() -> None:
    told = render_transcript([], 100)
    assert request("openai-chat", messages=[{"role": "user", "content": told}]).asks_for_summary
    said = f"Look: {told}"
    assert not request("openai-responses", input=said).asks_for_summary
