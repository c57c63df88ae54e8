"""Reasoning is stored, and is sent back to the provider that produced it and to no other."""

import pytest
from tests.support.model_questions import (
    ANTHROPIC,
    FLIP,
    GOOGLE,
    HELLO,
    KEYS,
    OPENAI,
    RESPONSES,
    ROLL,
    answer_rows,
    ask_for_answer,
    ask_for_events,
    make_question,
    result,
    row,
    text_deltas,
)

from holdfast import testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Role,
    Text,
    Thinking,
)
from holdfast.core.models import ModelSettings
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ThinkingDelta,
)
from holdfast.testing import ScriptedProvider


async def test_thinking_comes_before_the_text_and_keeps_its_signature(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    thought = testing.Thinking("Let me see.", signature="c2lnbmVk")
    provider.script(testing.Answer(thought, testing.RedactedThinking("aGlkZGVu"), "Yes."))
    settings = ModelSettings(thinking=True, thinking_budget=2000, temperature=0.3)
    events = await ask_for_events(model, make_question(ANTHROPIC, settings=settings))
    thoughts = [event.text for event in events if isinstance(event, ThinkingDelta)]
    assert "".join(thoughts) == "Let me see."
    answer = events[-1]
    assert isinstance(answer, Answer)
    visible, hidden, text = answer.content
    assert visible == Thinking("Let me see.", signature="c2lnbmVk", provider="anthropic")
    assert isinstance(hidden, Thinking)
    assert (hidden.text, hidden.signature, hidden.redacted) == ("", "aGlkZGVu", True)
    assert text == Text("Yes.")


async def test_anthropic_thinks_within_its_budget_and_without_temperature(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(
        thinking=True, thinking_budget=5000, temperature=0.3, max_output_tokens=4096
    )
    await ask_for_answer(model, make_question(ANTHROPIC, settings=settings))
    body = provider.requests[0].body
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 5000}
    assert body["max_tokens"] > 5000
    assert "temperature" not in body


async def test_a_model_that_does_not_reason_is_not_asked_to(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(thinking=True, reasoning_effort="high")
    await ask_for_answer(model, make_question(OPENAI, settings=settings))
    assert "reasoning_effort" not in provider.requests[0].body


async def test_a_reasoning_model_gets_its_effort_and_no_temperature(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(reasoning_effort="low", temperature=0.7)
    await ask_for_answer(model, make_question("openai/o4-mini", tools=(ROLL,), settings=settings))
    body = provider.requests[0].body
    assert body["reasoning"]["effort"] == "low"
    assert "temperature" not in body
    assert "parallel_tool_calls" not in body


async def test_openai_stores_nothing_and_returns_its_encrypted_reasoning(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    await ask_for_answer(model, make_question(RESPONSES))
    body = provider.requests[0].body
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["reasoning"]["summary"] == "auto"


async def test_a_thought_that_was_not_shown_goes_back_all_the_same(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    hidden = testing.RedactedThinking("ZW5jcnlwdGVk")
    provider.script(testing.Answer(hidden, "I flip.", testing.ToolCall("flip_coin")))
    events = await ask_for_events(model, make_question(RESPONSES, tools=(FLIP,)))
    assert events[0] == HiddenThinking(redacted=False)
    first = events[-1]
    assert isinstance(first, Answer)
    rows = (HELLO, *answer_rows(first))
    await ask_for_answer(model, make_question(RESPONSES, *rows, tools=(FLIP,)))
    second = provider.requests[1]
    assert second.refused is None
    assert [item.get("type") for item in second.messages[2:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert second.messages[2]["encrypted_content"] == "ZW5jcnlwdGVk"


async def test_thoughts_between_calls_go_back_in_their_places(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    provider.script(
        testing.Answer(
            testing.RedactedThinking("b25l"),
            testing.ToolCall("flip_coin"),
            testing.RedactedThinking("dHdv"),
            testing.ToolCall("flip_coin"),
        )
    )
    asked = {"tools": (FLIP,), "parallel_tool_calls": True}
    first = await ask_for_answer(model, make_question(RESPONSES, **asked))
    calls = first.tool_calls
    both_called = row(Role.ASSISTANT, "", *first.content, tool_calls=calls, step_id="step-1")
    returned = row(Role.TOOL, tool_returns=tuple(result(call.id) for call in calls))
    await ask_for_answer(model, make_question(RESPONSES, HELLO, both_called, returned, **asked))
    # If only one call is allowed, the first is kept; the reasoning after it belongs to a dropped call.
    kept = row(Role.ASSISTANT, "", *first.content, tool_calls=calls[:1], step_id="step-1")
    returned = row(Role.TOOL, tool_returns=(result(calls[0].id),))
    await ask_for_answer(model, make_question(RESPONSES, HELLO, kept, returned, **asked))
    both, one = ([item.get("type") for item in sent.messages[2:]] for sent in provider.requests[1:])
    assert both[:4] == ["reasoning", "function_call", "reasoning", "function_call"]
    assert one == ["reasoning", "function_call", "function_call_output"]
    assert [request.refused for request in provider.requests] == [None] * 3


async def test_text_after_a_call_is_streamed_and_stored(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("I flip.", testing.ToolCall("flip_coin"), " Wait for it."))
    events = await ask_for_events(model, make_question(handle, tools=(FLIP,)))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "".join(text_deltas(events)) == "I flip. Wait for it."
    stored = [part.text for part in answer.content if isinstance(part, Text)]
    assert "".join(stored) == "I flip. Wait for it."
    assert len(answer.tool_calls) == 1


async def test_google_gets_the_signature_of_a_call_back(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    thought = testing.Thinking("Hm.", signature="c2lnbmVk")
    provider.script(testing.Answer(thought, testing.ToolCall("flip_coin")))
    asked = "google_ai/gemini-3-pro-preview"
    first = await ask_for_answer(model, make_question(asked, tools=(FLIP,)))
    await ask_for_answer(model, make_question(asked, HELLO, *answer_rows(first), tools=(FLIP,)))
    second = provider.requests[1]
    assert second.refused is None
    (call,) = second.messages[1]["parts"]
    assert call["thoughtSignature"] == "c2lnbmVk"


@pytest.mark.parametrize("asked", [RESPONSES, ANTHROPIC, GOOGLE])
async def test_a_thought_that_nothing_came_of_stays_out(
    provider: ScriptedProvider, model: ModelRouter, asked: str
) -> None:
    settings = ModelSettings(thinking=True, thinking_budget=2000)
    provider.script(testing.Answer(testing.Thinking("Hm."), finish="length"))
    first = await ask_for_answer(model, make_question(asked, settings=settings))
    cut = row(Role.ASSISTANT, "", *first.content, step_id="step-1")
    await ask_for_answer(model, make_question(asked, HELLO, cut, HELLO, settings=settings))
    assert provider.requests[1].refused is None
    assert "Hm." not in str(provider.requests[1].body)


async def test_thinking_goes_back_to_the_one_who_thought_it(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(
        testing.Answer(
            testing.Thinking("Hm.", signature="c2lnbmVk"), "I flip.", testing.ToolCall("flip_coin")
        )
    )
    settings = ModelSettings(thinking=True, thinking_budget=2000)
    first = await ask_for_answer(model, make_question(handle, tools=(FLIP,), settings=settings))
    rows = (HELLO, *answer_rows(first))
    await ask_for_answer(model, make_question(handle, *rows, tools=(FLIP,), settings=settings))
    others = [other for other in KEYS if other != handle]
    for other in others:
        await ask_for_answer(model, make_question(other, *rows, tools=(FLIP,), settings=settings))
    _, same, *foreign = provider.requests
    match handle:
        case "openai/gpt-4o":
            assert same.messages[2]["reasoning_content"] == "Hm."
        case "openai/gpt-5":
            sent = same.messages[2]
            assert (sent["type"], sent["encrypted_content"]) == ("reasoning", "c2lnbmVk")
            assert sent["summary"] == [{"type": "summary_text", "text": "Hm."}]
        case "anthropic/claude-haiku-4-5":
            thought = same.messages[1]["content"][0]
            assert (thought["thinking"], thought["signature"]) == ("Hm.", "c2lnbmVk")
        case _:
            # Here the signature is part of the result of the reasoning; the reasoning itself is not requested.
            assert same.messages[1]["parts"][0]["thoughtSignature"] == "c2lnbmVk"
    assert same.refused is None
    assert [request.refused for request in foreign] == [None] * len(others)
    assert "Hm." not in str([request.body for request in foreign])
    assert "c2lnbmVk" not in str([request.body for request in foreign])
