"""What every Model does, tested on every provider's wire over real HTTP."""

import asyncio
import json

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
    arguments_of,
    ask_for_answer,
    ask_for_events,
    call_rows,
    make_question,
    next_event,
    row,
    text_deltas,
)

from holdfast import testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Role,
    Text,
)
from holdfast.core.models import GUIDE_HANDLE, ModelSettings
from holdfast.core.runs import Usage
from holdfast.core.turn import Finish
from holdfast.ports.model import (
    Answer,
    ModelEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from holdfast.testing import ScriptedProvider


async def test_text_comes_in_pieces_and_then_whole(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gates = [testing.Gate(), testing.Gate()]
    provider.script(testing.Answer("One", gates[0], " two", gates[1], " three."))
    async with model.ask(make_question(handle)) as stream:
        events = [await next_event(stream)]
        for gate in gates:
            gate.release()
            events.append(await next_event(stream))
        events += [event async for event in stream]
    assert text_deltas(events) == ["One", " two", " three."]
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert [part.text for part in answer.content if isinstance(part, Text)] == ["One two three."]
    assert len(answer.content) == 1
    assert (answer.tool_calls, answer.finish) == ((), Finish.STOP)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)


async def test_the_usage_is_reported_as_soon_as_the_provider_sends_it(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("One two three."))
    events = await ask_for_events(model, make_question(handle))

    counts = [event.usage for event in events if isinstance(event, UsageUpdate)]
    assert all(usage.prompt_tokens in (0, 10) for usage in counts)
    if handle == ANTHROPIC:
        # Before the first word.
        assert isinstance(events[0], UsageUpdate)
        assert events[0].usage.prompt_tokens == 10


async def test_what_has_arrived_already_is_one_piece(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    call = testing.ToolCall("roll_dice", {"num_sides": 1234567890})
    thought = testing.Thinking("I think and think.")
    provider.script(testing.Answer(thought, "One two three four five.", call))
    events = await ask_for_events(model, make_question(handle, tools=(ROLL,)))
    deltas_of = {
        kind: [event for event in events if isinstance(event, kind)]
        for kind in (ThinkingDelta, TextDelta, ToolCallDelta)
    }
    if handle == GOOGLE:
        # Google sends sentences, not tokens, so merging them gains nothing.
        assert len(deltas_of[TextDelta]) == 5
    else:
        # The call comes with its name first.
        assert [len(deltas) for deltas in deltas_of.values()] == [1, 1, 2]


@pytest.mark.parametrize("asked", [*KEYS, GUIDE_HANDLE])
async def test_every_model_ends_with_all_that_it_said(
    provider: ScriptedProvider, model: ModelRouter, asked: str
) -> None:
    provider.script(testing.Answer("I call it.", testing.ToolCall("flip_coin")))
    events = await ask_for_events(
        model, make_question(asked, row(Role.USER, "call flip_coin"), tools=(FLIP,))
    )
    *deltas, answer = events
    assert isinstance(answer, Answer)
    assert not [delta for delta in deltas if isinstance(delta, Answer)]
    (text,) = answer.content
    assert isinstance(text, Text)
    assert text.text == "".join(text_deltas(deltas))
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
    async with model.ask(make_question(handle)) as events:
        assert await next_event(events) == TextDelta("First")
        gate.release()
        assert await next_event(events) == TextDelta(" second.")


async def test_a_tool_call_streams_its_arguments(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gate = testing.Gate()
    provider.script(
        testing.Answer("I roll.", testing.ToolCall("roll_dice", {"num_sides": 16}), gate)
    )
    async with model.ask(make_question(handle, tools=(ROLL,))) as stream:
        begun: list[ModelEvent] = []
        while "".join(arguments_of(begun)) != '{"num_sides":16}':
            begun.append(await asyncio.wait_for(anext(stream), 10))
        gate.release()
        events = begun + [event async for event in stream]
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    assert {(delta.call_id, delta.name) for delta in deltas} == {(deltas[0].call_id, "roll_dice")}
    assert "".join(arguments_of(events)) == '{"num_sides":16}'
    answer = events[-1]
    assert isinstance(answer, Answer)
    (call,) = answer.tool_calls
    assert (call.id, call.name) == (deltas[0].call_id, "roll_dice")
    assert call.arguments == '{"num_sides":16}'
    assert answer.finish is Finish.TOOL_CALLS


async def test_a_call_without_arguments_is_streamed_as_it_is_stored(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer(testing.ToolCall("flip_coin", "")))
    events = await ask_for_events(model, make_question(handle, tools=(FLIP,)))
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "".join(arguments_of(events)) == answer.tool_calls[0].arguments
    assert json.loads(answer.tool_calls[0].arguments) is not None


async def test_calls_that_come_in_one_piece_are_told_apart(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    """As many servers send them that speak OpenAI's chat completions."""
    calls = [testing.ToolCall("roll_dice", {"num_sides": n}, at_once=True) for n in (6, 20)]
    provider.script(testing.Answer(*calls))
    answer = await ask_for_answer(
        model, make_question(OPENAI, tools=(ROLL,), parallel_tool_calls=True)
    )
    assert [call.arguments for call in answer.tool_calls] == ['{"num_sides":6}', '{"num_sides":20}']


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
    question = make_question(handle, tools=(ROLL, FLIP), parallel_tool_calls=True)
    answer = await ask_for_answer(model, question)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("roll_dice", '{"num_sides":6}'),
        ("flip_coin", "{}"),
        ("roll_dice", '{"num_sides":20}'),
    ]
    assert len({call.id for call in answer.tool_calls}) == 3


async def test_a_model_can_be_forced_to_call_a_tool(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    await ask_for_answer(model, make_question(handle, tools=(ROLL, FLIP), force_tool=True))
    await ask_for_answer(model, make_question(handle, tools=(ROLL, FLIP)))
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
    question = make_question(ANTHROPIC, tools=(ROLL,), force_tool=True, settings=settings)
    await ask_for_answer(model, question)
    assert provider.requests[0].body["tool_choice"]["type"] == "auto"
    assert provider.requests[0].body["thinking"]["type"] == "enabled"


async def test_a_call_without_an_id_gets_one(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    provider.script(testing.Answer(testing.ToolCall("flip_coin", id="")))
    events = await ask_for_events(model, make_question(OPENAI, tools=(FLIP,)))
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
    history = (HELLO, *call_rows("call_again"), HELLO)
    answer = await ask_for_answer(model, make_question(handle, *history, tools=(FLIP,)))
    assert answer.tool_calls[0].id != given
    assert answer.tool_calls[0].id.startswith("call_")


async def test_usage_is_counted_alike_everywhere(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    reported = testing.Usage(
        input_tokens=100,
        output_tokens=40,
        cached_input_tokens=60,
        cache_write_tokens=30,
        reasoning_tokens=7,
    )
    provider.script(testing.Answer("Yes.", usage=reported))
    answer = await ask_for_answer(model, make_question(handle))
    # Google does not report cache writes.
    assert answer.usage == Usage(100, 40, 60, None if handle == GOOGLE else 30, 7)


async def test_an_answer_cut_by_the_limit_says_so(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("And so", finish="length"))
    assert (await ask_for_answer(model, make_question(handle))).finish is Finish.LENGTH


async def test_an_empty_answer_is_an_answer(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer())
    answer = await ask_for_answer(model, make_question(handle))
    assert (answer.content, answer.tool_calls, answer.finish) == ((), (), Finish.STOP)
