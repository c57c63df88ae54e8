"""What every model behind the port does, shown on every provider's wire over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import errors, testing
from holdfast.adapters.models import handles
from holdfast.adapters.models.handles import GUIDE_HANDLE, ProviderSettings
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Decision,
    Image,
    Message,
    Outcome,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.ports.model import (
    Answer,
    HiddenThinking,
    ModelEvent,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolOffer,
)
from holdfast.testing import ScriptedProvider

OPENAI = "openai/gpt-4o"
RESPONSES = "openai/gpt-5"
ANTHROPIC = "anthropic/claude-haiku-4-5"
GOOGLE = "google_ai/gemini-2.5-flash"
KEYS = {
    OPENAI: "sk-openai-secret-key",
    RESPONSES: "sk-openai-secret-key",
    ANTHROPIC: "sk-ant-secret-key",
    GOOGLE: "google-secret-key",
}
ROLL = ToolOffer(
    "roll_dice",
    "Roll.",
    {"type": "object", "properties": {"num_sides": {"type": "integer"}}, "required": ["num_sides"]},
)
FLIP = ToolOffer("flip_coin", "Flip.", {"type": "object", "properties": {}})
# One red pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider() as running:
        yield running


@pytest.fixture
async def model(provider: ScriptedProvider) -> AsyncIterator[ModelRouter]:
    router = ModelRouter(_settings(provider))
    yield router
    await router.aclose()


@pytest.fixture(params=[*KEYS], ids=["chat", "responses", "anthropic", "google"])
def handle(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _settings(provider: ScriptedProvider, **more: Any) -> ProviderSettings:
    return ProviderSettings(
        openai_api_key=KEYS[OPENAI],
        openai_base_url=provider.openai_url,
        anthropic_api_key=KEYS[ANTHROPIC],
        anthropic_base_url=provider.url,
        google_api_key=KEYS[GOOGLE],
        google_base_url=provider.url,
        **more,
    )


def _row(role: Role, text: str = "", *parts: Part, **more: Any) -> Message:
    content = (*parts, Text(text)) if text else parts
    return Message(
        id="message-1",
        agent_id="agent-1",
        thread_id="agent-1",
        role=role,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        content=content,
        **more,
    )


SYSTEM = _row(Role.SYSTEM, "You are terse.")
HELLO = _row(Role.USER, "Hello.")


def _question(handle: str, *rows: Message, **more: Any) -> Question:
    settings = more.pop("settings", ModelSettings())
    choice = ModelChoice(handle=handle, context_window=128_000, settings=settings)
    return Question(choice=choice, history=(SYSTEM, *(rows or (HELLO,))), **more)


async def _events(model: ModelRouter, question: Question) -> list[ModelEvent]:
    async with model.ask(question) as events:
        return [event async for event in events]


async def _collect(events: AsyncIterator[ModelEvent], into: list[ModelEvent]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 - what came before an error is kept


async def _answer(model: ModelRouter, question: Question) -> Answer:
    last = (await _events(model, question))[-1]
    assert isinstance(last, Answer)
    return last


def _arguments(events: list[ModelEvent]) -> list[str]:
    return [event.arguments for event in events if isinstance(event, ToolCallDelta)]


def _said(events: list[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


async def test_text_comes_in_pieces_and_then_whole(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gates = [testing.Gate(), testing.Gate()]
    provider.script(testing.Answer("One", gates[0], " two", gates[1], " three."))
    async with model.ask(_question(handle)) as stream:
        events = [await anext(stream)]
        for gate in gates:
            gate.release()
            events.append(await anext(stream))
        events += [event async for event in stream]
    assert _said(events) == ["One", " two", " three."]
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert [part.text for part in answer.content if isinstance(part, Text)] == ["One two three."]
    assert len(answer.content) == 1
    assert (answer.tool_calls, answer.finish) == ((), Finish.STOP)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)


async def test_what_has_arrived_already_is_one_piece(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    call = testing.ToolCall("roll_dice", {"num_sides": 1234567890})
    thought = testing.Thinking("I think and think.")
    provider.script(testing.Answer(thought, "One two three four five.", call))
    events = await _events(model, _question(handle, tools=(ROLL,)))
    told = {
        kind: [event for event in events if isinstance(event, kind)]
        for kind in (ThinkingDelta, TextDelta, ToolCallDelta)
    }
    if handle == GOOGLE:
        # Google sends no tokens but sentences: nothing is won by merging them.
        assert len(told[TextDelta]) == 5
    else:
        # The call comes with its name first.
        assert [len(deltas) for deltas in told.values()] == [1, 1, 2]


@pytest.mark.parametrize("asked", [*KEYS, GUIDE_HANDLE])
async def test_every_model_ends_with_all_that_it_said(
    provider: ScriptedProvider, model: ModelRouter, asked: str
) -> None:
    provider.script(testing.Answer("I call it.", testing.ToolCall("flip_coin")))
    events = await _events(
        model, _question(asked, _row(Role.USER, "call flip_coin"), tools=(FLIP,))
    )
    *deltas, answer = events
    assert isinstance(answer, Answer)
    assert not [delta for delta in deltas if isinstance(delta, Answer)]
    (said,) = answer.content
    assert isinstance(said, Text)
    assert said.text == "".join(_said(deltas))
    (call,) = answer.tool_calls
    streamed = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert {(delta.call_id, delta.name) for delta in streamed} == {(call.id, "flip_coin")}
    assert "".join(delta.arguments for delta in streamed) == call.arguments
    assert answer.finish is Finish.TOOL_CALLS


async def test_a_piece_is_handed_on_before_the_next_one_is_sent(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gate = testing.Gate()
    provider.script(testing.Answer("First", gate, " second."))
    async with model.ask(_question(handle)) as events:
        assert await asyncio.wait_for(anext(events), 10) == TextDelta("First")
        gate.release()
        rest = [event async for event in events]
    assert rest[0] == TextDelta(" second.")


async def test_the_question_reaches_the_provider_as_asked(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    settings = ModelSettings(temperature=0.25, max_output_tokens=77)
    await _answer(model, _question(handle, settings=settings))
    (request,) = provider.requests
    assert request.stream
    assert request.api_key == KEYS[handle]
    assert request.model == handle.split("/")[1]
    assert request.user_text == "Hello."
    body = request.body
    match handle:
        case "openai/gpt-4o":
            sent = (
                body["max_completion_tokens"],
                body["temperature"],
                request.messages[0]["content"],
            )
        case "openai/gpt-5":
            # A model that thinks knows no temperature.
            sent = body["max_output_tokens"], 0.25, request.messages[0]["content"]
            assert "temperature" not in body
        case "anthropic/claude-haiku-4-5":
            sent = body["max_tokens"], body["temperature"], body["system"]
        case _:
            options = body["generationConfig"]
            system = body["systemInstruction"]["parts"][0]["text"]
            sent = options["maxOutputTokens"], options["temperature"], system
    assert sent == (77, 0.25, "You are terse.")


async def test_a_response_format_goes_to_openai_as_it_is(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    await _answer(model, _question(OPENAI, settings=ModelSettings(response_format=form)))
    assert provider.requests[0].body["response_format"] == form


async def test_a_response_format_goes_to_responses_in_their_form(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    settings = ModelSettings(response_format=form, verbosity="low")
    await _answer(model, _question(RESPONSES, settings=settings))
    assert provider.requests[0].body["text"] == {
        "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
        "verbosity": "low",
    }


async def test_a_tools_schema_is_rewritten_only_if_it_must_be_strict(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    for strict in (None, True):
        settings = ModelSettings(strict=strict)
        await _answer(model, _question(OPENAI, tools=(ROLL,), settings=settings))
    loose, strict_one = (request.tools[0]["function"] for request in provider.requests)
    assert loose == {"name": "roll_dice", "description": "Roll.", "parameters": ROLL.parameters}
    assert strict_one["strict"] is True
    assert strict_one["parameters"]["additionalProperties"] is False


async def test_a_tool_call_streams_its_arguments(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gate = testing.Gate()
    provider.script(
        testing.Answer("I roll.", testing.ToolCall("roll_dice", {"num_sides": 16}), gate)
    )
    async with model.ask(_question(handle, tools=(ROLL,))) as stream:
        begun: list[ModelEvent] = []
        while "".join(_arguments(begun)) != '{"num_sides":16}':
            begun.append(await asyncio.wait_for(anext(stream), 10))
        gate.release()
        events = begun + [event async for event in stream]
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert {(delta.call_id, delta.name) for delta in deltas} == {(deltas[0].call_id, "roll_dice")}
    assert "".join(_arguments(events)) == '{"num_sides":16}'
    answer = events[-1]
    assert isinstance(answer, Answer)
    (call,) = answer.tool_calls
    assert (call.id, call.name) == (deltas[0].call_id, "roll_dice")
    assert call.arguments == '{"num_sides":16}'
    assert answer.finish is Finish.TOOL_CALLS


async def test_a_call_without_arguments_is_told_as_it_is_stored(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer(testing.ToolCall("flip_coin", "")))
    events = await _events(model, _question(handle, tools=(FLIP,)))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "".join(_arguments(events)) == answer.tool_calls[0].arguments
    assert json.loads(answer.tool_calls[0].arguments) is not None


async def test_several_calls_of_one_answer_are_told_apart(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(
        testing.Answer(
            testing.ToolCall("roll_dice", {"num_sides": 6}),
            testing.ToolCall("flip_coin"),
            testing.ToolCall("roll_dice", {"num_sides": 20}),
        )
    )
    question = _question(handle, tools=(ROLL, FLIP), parallel_tool_calls=True)
    answer = await _answer(model, question)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("roll_dice", '{"num_sides":6}'),
        ("flip_coin", "{}"),
        ("roll_dice", '{"num_sides":20}'),
    ]
    assert len({call.id for call in answer.tool_calls}) == 3


@pytest.mark.parametrize("parallel", [True, False])
async def test_parallel_calls_are_allowed_or_forbidden(
    provider: ScriptedProvider, model: ModelRouter, handle: str, parallel: bool
) -> None:
    await _answer(model, _question(handle, tools=(ROLL,), parallel_tool_calls=parallel))
    body = provider.requests[0].body
    if handle in (OPENAI, RESPONSES):
        assert body["parallel_tool_calls"] is parallel
    elif handle == ANTHROPIC:
        assert body["tool_choice"]["disable_parallel_tool_use"] is not parallel
    # Google cannot be told; the engine keeps the first call.


async def test_a_model_can_be_forced_to_call_a_tool(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    await _answer(model, _question(handle, tools=(ROLL, FLIP), force_tool=True))
    await _answer(model, _question(handle, tools=(ROLL, FLIP)))
    forced, free = (request.body for request in provider.requests)
    if handle in (OPENAI, RESPONSES):
        assert (forced["tool_choice"], free["tool_choice"]) == ("required", "auto")
    elif handle == ANTHROPIC:
        assert (forced["tool_choice"]["type"], free["tool_choice"]["type"]) == ("any", "auto")
    else:
        modes = [body["toolConfig"]["functionCallingConfig"]["mode"] for body in (forced, free)]
        assert modes == ["ANY", "AUTO"]


async def test_forcing_gives_way_while_anthropic_thinks(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(thinking=True, thinking_budget=2000)
    question = _question(ANTHROPIC, tools=(ROLL,), force_tool=True, settings=settings)
    await _answer(model, question)
    assert provider.requests[0].body["tool_choice"]["type"] == "auto"
    assert provider.requests[0].body["thinking"]["type"] == "enabled"


async def test_a_call_without_an_id_gets_one(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    provider.script(testing.Answer(testing.ToolCall("flip_coin", id="")))
    events = await _events(model, _question(OPENAI, tools=(FLIP,)))
    answer = events[-1]
    assert isinstance(answer, Answer)
    (call,) = answer.tool_calls
    assert call.id.startswith("call_")
    assert len(call.id) == len("call_") + 8
    assert {event.call_id for event in events if isinstance(event, ToolCallDelta)} == {call.id}


@pytest.mark.parametrize("given", ["call_again", "functions.flip_coin:0"])
async def test_an_id_that_is_taken_or_unusable_is_replaced(
    provider: ScriptedProvider, model: ModelRouter, handle: str, given: str
) -> None:
    provider.script(testing.Answer(testing.ToolCall("flip_coin", id=given)))
    history = (HELLO, *_settled_call("call_again"), HELLO)
    answer = await _answer(model, _question(handle, *history, tools=(FLIP,)))
    assert answer.tool_calls[0].id != given
    assert answer.tool_calls[0].id.startswith("call_")


async def test_usage_is_counted_alike_everywhere(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    told = testing.Usage(
        input_tokens=100,
        output_tokens=40,
        cached_input_tokens=60,
        cache_write_tokens=30,
        reasoning_tokens=7,
    )
    provider.script(testing.Answer("Yes.", usage=told))
    answer = await _answer(model, _question(handle))
    # Google does not tell what it wrote into its cache.
    assert answer.usage == Usage(100, 40, 60, None if handle == GOOGLE else 30, 7)


async def test_an_answer_cut_by_the_limit_says_so(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("And so", finish="length"))
    assert (await _answer(model, _question(handle))).finish is Finish.LENGTH


async def test_an_empty_answer_is_an_answer(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer())
    answer = await _answer(model, _question(handle))
    assert (answer.content, answer.tool_calls, answer.finish) == ((), (), Finish.STOP)


# thinking


async def test_thinking_comes_before_the_text_and_keeps_its_signature(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    thought = testing.Thinking("Let me see.", signature="c2lnbmVk")
    provider.script(testing.Answer(thought, testing.RedactedThinking("aGlkZGVu"), "Yes."))
    settings = ModelSettings(thinking=True, thinking_budget=2000, temperature=0.3)
    events = await _events(model, _question(ANTHROPIC, settings=settings))
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
    await _answer(model, _question(ANTHROPIC, settings=settings))
    body = provider.requests[0].body
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 5000}
    assert body["max_tokens"] > 5000
    assert "temperature" not in body


async def test_a_model_that_does_not_think_is_not_told_to(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(thinking=True, reasoning_effort="high")
    await _answer(model, _question(OPENAI, settings=settings))
    assert "reasoning_effort" not in provider.requests[0].body


async def test_a_reasoning_model_gets_its_effort_and_no_temperature(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    settings = ModelSettings(reasoning_effort="low", temperature=0.7)
    await _answer(model, _question("openai/o4-mini", tools=(ROLL,), settings=settings))
    body = provider.requests[0].body
    assert body["reasoning"]["effort"] == "low"
    assert "temperature" not in body
    assert "parallel_tool_calls" not in body


async def test_openai_keeps_nothing_and_hands_its_thoughts_over(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    await _answer(model, _question(RESPONSES))
    body = provider.requests[0].body
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["reasoning"]["summary"] == "auto"


async def test_a_thought_that_was_not_shown_goes_back_all_the_same(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    hidden = testing.RedactedThinking("ZW5jcnlwdGVk")
    provider.script(testing.Answer(hidden, "I flip.", testing.ToolCall("flip_coin")))
    events = await _events(model, _question(RESPONSES, tools=(FLIP,)))
    assert events[0] == HiddenThinking(redacted=False)
    first = events[-1]
    assert isinstance(first, Answer)
    rows = (HELLO, *_settled(first))
    await _answer(model, _question(RESPONSES, *rows, tools=(FLIP,)))
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
    first = await _answer(model, _question(RESPONSES, **asked))
    calls = first.tool_calls
    answered = _row(Role.ASSISTANT, "", *first.content, tool_calls=calls, step_id="step-1")
    returned = _row(Role.TOOL, tool_returns=tuple(_result(call.id) for call in calls))
    await _answer(model, _question(RESPONSES, HELLO, answered, returned, **asked))
    # Where one call is wanted, the first is kept; the thought behind it has nothing left to lead to.
    kept = _row(Role.ASSISTANT, "", *first.content, tool_calls=calls[:1], step_id="step-1")
    returned = _row(Role.TOOL, tool_returns=(_result(calls[0].id),))
    await _answer(model, _question(RESPONSES, HELLO, kept, returned, **asked))
    both, one = ([item.get("type") for item in sent.messages[2:]] for sent in provider.requests[1:])
    assert both[:4] == ["reasoning", "function_call", "reasoning", "function_call"]
    assert one == ["reasoning", "function_call", "function_call_output"]
    assert [request.refused for request in provider.requests] == [None] * 3


async def test_words_after_a_call_are_told_and_stored(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("I flip.", testing.ToolCall("flip_coin"), " Wait for it."))
    events = await _events(model, _question(handle, tools=(FLIP,)))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "".join(_said(events)) == "I flip. Wait for it."
    stored = [part.text for part in answer.content if isinstance(part, Text)]
    assert "".join(stored) == "I flip. Wait for it."
    assert len(answer.tool_calls) == 1


async def test_google_gets_the_signature_of_a_call_back(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    thought = testing.Thinking("Hm.", signature="c2lnbmVk")
    provider.script(testing.Answer(thought, testing.ToolCall("flip_coin")))
    asked = "google_ai/gemini-3-pro-preview"
    first = await _answer(model, _question(asked, tools=(FLIP,)))
    await _answer(model, _question(asked, HELLO, *_settled(first), tools=(FLIP,)))
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
    first = await _answer(model, _question(asked, settings=settings))
    row = _row(Role.ASSISTANT, "", *first.content, step_id="step-1")
    await _answer(model, _question(asked, HELLO, row, HELLO, settings=settings))
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
    first = await _answer(model, _question(handle, tools=(FLIP,), settings=settings))
    rows = (HELLO, *_settled(first))
    await _answer(model, _question(handle, *rows, tools=(FLIP,), settings=settings))
    others = [other for other in KEYS if other != handle]
    for other in others:
        await _answer(model, _question(other, *rows, tools=(FLIP,), settings=settings))
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
            # Here the signature stands with what came of the thought; the thought itself is not asked for.
            assert same.messages[1]["parts"][0]["thoughtSignature"] == "c2lnbmVk"
    assert same.refused is None
    assert [request.refused for request in foreign] == [None] * len(others)
    assert "Hm." not in str([request.body for request in foreign])
    assert "c2lnbmVk" not in str([request.body for request in foreign])


# histories


def _result(call_id: str, text: str = "heads", outcome: Outcome = Outcome.FINISHED) -> ToolReturn:
    return ToolReturn(call_id, "flip_coin", outcome, (Text(text),) if text else ())


def _settled(answer: Answer) -> tuple[Message, Message]:
    """The rows of an answer with one call, and of its result."""
    call = answer.tool_calls[0]
    return (
        _row(Role.ASSISTANT, "", *answer.content, tool_calls=answer.tool_calls, step_id="step-1"),
        _row(Role.TOOL, tool_returns=(_result(call.id),), step_id="step-1"),
    )


def _settled_call(call_id: str) -> tuple[Message, Message]:
    return (
        _row(Role.ASSISTANT, tool_calls=(ToolCall(call_id, "flip_coin", "{}"),), step_id=call_id),
        _row(Role.TOOL, tool_returns=(_result(call_id),), step_id=call_id),
    )


async def test_a_history_with_results_is_accepted(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    calls = (ToolCall("call_1", "flip_coin", "{}"), ToolCall("call_2", "flip_coin", ""))
    rows = (
        HELLO,
        _row(Role.ASSISTANT, "Two flips.", tool_calls=calls, step_id="step-1"),
        _row(Role.TOOL, tool_returns=(_result("call_1"), _result("call_2", ""))),
        _row(Role.ASSISTANT, "Heads.", step_id="step-2"),
        _row(Role.SUMMARY, "They flipped coins."),
        _row(Role.USER, "Again."),
        *_settled_call("call_3"),
        _row(Role.USER, "Go on.", hidden=True),
    )
    await _answer(model, _question(handle, *rows, tools=(FLIP,)))
    (request,) = provider.requests
    assert request.refused is None
    assert request.user_text.endswith("Go on.")
    assert "They flipped coins." in str(request.messages)


async def test_calls_that_were_held_belong_to_the_same_answer(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    automatic = ToolCall("call_1", "flip_coin", "{}")
    held = ToolCall("call_2", "roll_dice", '{"num_sides": 6}')
    rows = (
        HELLO,
        _row(Role.ASSISTANT, "Both.", tool_calls=(automatic,), step_id="step-1"),
        _row(Role.APPROVAL, tool_calls=(held,), step_id="step-1"),
        _row(Role.APPROVAL, decisions=(Decision("call_2", approve=True),)),
        _row(Role.TOOL, tool_returns=(_result("call_1"), _result("call_2"))),
    )
    await _answer(model, _question(handle, *rows, tools=(ROLL, FLIP)))
    (request,) = provider.requests
    assert request.refused is None
    if handle == RESPONSES:
        kinds = [item.get("type", "message") for item in request.messages[2:]]
        returns = ["function_call_output"] * 2
        assert kinds == ["message", "function_call", "function_call", *returns]
    else:
        roles = [message["role"] for message in request.messages]
        assert sum(role in ("assistant", "model") for role in roles) == 1


async def test_a_failed_call_is_marked_as_an_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    call, _ = _settled_call("call_1")
    failed = _row(Role.TOOL, tool_returns=(_result("call_1", "no coin", Outcome.FAILED),))
    await _answer(model, _question(handle, HELLO, call, failed, tools=(FLIP,)))
    last = provider.requests[0].messages[-1]
    match handle:
        case "openai/gpt-4o":
            assert last["content"] == '{"error":"no coin"}'
        case "openai/gpt-5":
            assert last["output"] == '{"error":"no coin"}'
        case "anthropic/claude-haiku-4-5":
            assert last["content"][0]["is_error"] is True
            assert last["content"][0]["content"][0]["text"] == "no coin"
        case _:
            assert last["parts"][0]["functionResponse"]["response"] == {"error": "no coin"}


async def test_pictures_go_by_value(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    seen = _row(Role.USER, "What is it?", Image("image/png", PNG))
    await _answer(model, _question(handle, seen))
    assert PNG in str(provider.requests[0].messages)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((_row(Role.USER, "   "),), id="a blank message"),
        pytest.param((_row(Role.ASSISTANT, "Hi!"), HELLO), id="the agent spoke first"),
        pytest.param((_row(Role.USER, "One."), _row(Role.USER, "Two.")), id="two in a row"),
        pytest.param((HELLO, _row(Role.ASSISTANT), HELLO), id="an answer that was cut to nothing"),
        pytest.param((HELLO, _row(Role.SYSTEM, "Be kind."), HELLO), id="a second system message"),
        pytest.param(
            (
                HELLO,
                _row(Role.ASSISTANT, tool_calls=(ToolCall("call_1", "flip_coin", "{not json"),)),
                _row(Role.TOOL, tool_returns=(_result("call_1", "bad", Outcome.FAILED),)),
            ),
            id="arguments that are no JSON",
        ),
    ],
)
async def test_odd_histories_are_accepted_too(
    provider: ScriptedProvider, model: ModelRouter, handle: str, rows: tuple[Message, ...]
) -> None:
    await _answer(model, _question(handle, *rows, tools=(FLIP,)))
    assert provider.requests[0].refused is None


async def test_a_system_message_alone_is_enough(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    choice = ModelChoice(handle=handle, context_window=1000)
    await _answer(model, Question(choice=choice, history=(SYSTEM,)))
    assert provider.requests[0].refused is None


# what goes wrong


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ModelRejectedRequest),
        (401, errors.ModelAuthFailed),
        (402, errors.ModelOutOfCredits),
        (403, errors.ModelAuthFailed),
        (404, errors.ModelRejectedRequest),
        (408, errors.ModelTimedOut),
        (409, errors.ModelError),
        (413, errors.ModelRejectedRequest),
        (422, errors.ModelRejectedRequest),
        (429, errors.ModelRateLimited),
        (500, errors.ModelError),
        (502, errors.ModelError),
        (503, errors.ModelOverloaded),
        (504, errors.ModelTimedOut),
        (529, errors.ModelOverloaded),
    ],
)
async def test_each_status_has_its_error_and_keeps_the_providers_words(
    provider: ScriptedProvider,
    model: ModelRouter,
    handle: str,
    status: int,
    expected: type[errors.ModelError],
) -> None:
    provider.script(testing.HttpError(status, "The dog ate it."))
    with pytest.raises(errors.ModelError) as raised:
        await _answer(model, _question(handle))
    assert type(raised.value) is expected
    assert "The dog ate it." in raised.value.detail
    assert len(provider.requests) == 1  # the engine retries, nobody else
    assert raised.value.transient is (status in (408, 409, 429) or status >= 500)


async def test_a_provider_may_say_when_to_ask_again(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.HttpError(429, "Slow down.", headers={"retry-after": "7"}))
    with pytest.raises(errors.ModelRateLimited) as raised:
        await _answer(model, _question(handle))
    assert (raised.value.transient, raised.value.retry_after_seconds) == (True, 7)


async def test_an_account_without_credit_is_not_asked_again(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    provider.script(
        testing.HttpError(429, "You exceeded your quota.", code="insufficient_quota"),
    )
    with pytest.raises(errors.ModelOutOfCredits) as raised:
        await _answer(model, _question(OPENAI))
    assert not raised.value.transient


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 128000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
    ],
)
async def test_a_history_that_does_not_fit_has_its_own_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str, words: str
) -> None:
    provider.script(testing.HttpError(400, words))
    with pytest.raises(errors.ContextWindowExceeded) as raised:
        await _answer(model, _question(handle))
    assert raised.value.detail == words


async def test_a_key_never_shows_in_an_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.HttpError(401, f"Incorrect API key provided: {KEYS[handle]}."))
    with pytest.raises(errors.ModelAuthFailed) as raised:
        await _answer(model, _question(handle))
    assert KEYS[handle] not in str(raised.value)
    assert "Incorrect API key provided" in raised.value.detail


@pytest.mark.parametrize(
    "fault",
    [
        testing.MalformedJson(),
        testing.MalformedSse(),
        testing.EmptyAnswer(),
        testing.ResetConnection(),
        testing.Answer("Half an", testing.HangUp()),
        testing.TruncatedStream(3, testing.Answer("One two three four.")),
    ],
    ids=["no stream", "malformed", "nothing", "reset", "hung up", "truncated"],
)
async def test_a_broken_stream_is_a_model_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str, fault: testing.Scripted
) -> None:
    provider.script(fault)
    with pytest.raises(errors.ModelError) as raised:
        await _answer(model, _question(handle))
    assert type(raised.value) is errors.ModelError
    assert raised.value.detail
    assert raised.value.transient


async def test_what_came_before_the_break_is_handed_on(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("Half an", testing.HangUp()))
    async with model.ask(_question(handle)) as events:
        said: list[ModelEvent] = []
        with pytest.raises(errors.ModelError):
            await _collect(events, said)
    assert "".join(_said(said)) == "Half an"


async def test_a_provider_that_says_nothing_times_out(
    provider: ScriptedProvider, handle: str
) -> None:
    impatient = ModelRouter(_settings(provider, silence_seconds=0.05))
    for fault in (testing.NoAnswer(), testing.Answer("Well", testing.Hang())):
        provider.script(fault)
        with pytest.raises(errors.ModelTimedOut):
            await _answer(impatient, _question(handle))
    await impatient.aclose()


async def test_a_provider_that_is_not_there_is_a_model_error(handle: str) -> None:
    async with ScriptedProvider() as gone:
        settings = _settings(gone)
    router = ModelRouter(settings)
    with pytest.raises(errors.ModelError) as raised:
        await _answer(router, _question(handle))
    assert raised.value.detail
    await router.aclose()


async def test_an_error_of_the_caller_is_not_taken_for_the_providers(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with model.ask(_question(handle)):
            raise ZeroDivisionError


async def test_half_a_character_is_refused_not_a_crash(model: ModelRouter, handle: str) -> None:
    with pytest.raises(errors.ModelRejectedRequest):
        await _answer(model, _question(handle, _row(Role.USER, "\ud800")))


# leaving early


async def test_leaving_closes_the_providers_socket(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("One", testing.Hang()))
    async with model.ask(_question(handle)) as events:
        await asyncio.wait_for(anext(events), 10)
    (request,) = provider.requests
    await request.finished.wait(10)
    assert request.closed_early


@pytest.mark.parametrize(
    "scripted", [testing.NoAnswer(), testing.Answer("One", testing.Hang())], ids=["silent", "mid"]
)
async def test_cancelling_closes_the_providers_socket(
    provider: ScriptedProvider, model: ModelRouter, handle: str, scripted: testing.Scripted
) -> None:
    await model.ready(_question(handle).choice)
    provider.script(scripted)
    asking = asyncio.create_task(_answer(model, _question(handle)))
    request = await provider.wait_for_request(timeout=10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await request.finished.wait(10)
    assert request.closed_early


async def test_a_connection_is_used_again(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    for _ in range(3):
        await _answer(model, _question(handle))
    assert len(provider._server._connections) == 1


# handles


@pytest.mark.parametrize(
    ("asked", "variable"),
    [(OPENAI, "OPENAI_API_KEY"), (ANTHROPIC, "ANTHROPIC_API_KEY"), (GOOGLE, "GEMINI_API_KEY")],
)
async def test_a_provider_without_a_key_is_unknown(asked: str, variable: str) -> None:
    router = ModelRouter(ProviderSettings())
    with pytest.raises(errors.UnknownModel, match=variable):
        await _answer(router, _question(asked))


async def test_without_googles_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "find_spec", lambda _name: None)
    router = ModelRouter(ProviderSettings(google_api_key="key"))
    await router.warm()
    with pytest.raises(errors.UnknownModel, match=r"pip install 'holdfast\[google\]'"):
        await _answer(router, _question(GOOGLE))


async def test_a_loopback_server_needs_no_key(provider: ScriptedProvider) -> None:
    router = ModelRouter(ProviderSettings(openai_base_url=provider.openai_url))
    assert (await _answer(router, _question("openai/llama"))).content
    await router.aclose()
