"""What every Model does, tested on the wires that resemble OpenAI's: Mistral's and OpenRouter's."""

import asyncio

import pytest
from tests.support.model_questions import (
    HELLO,
    ROLL,
    answer_rows,
    ask_for_answer,
    ask_for_events,
    cancel_after_first_event,
    make_question,
    refusal,
    text_deltas,
)

from holdfast import errors, testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Text
from holdfast.core.turn import Finish
from holdfast.ports.model import Answer, TextDelta
from holdfast.testing import ScriptedProvider

pytestmark = pytest.mark.parametrize(
    "handle",
    ["mistral/mistral-large-latest", "openrouter/anthropic/claude-opus-4.5"],
    ids=["mistral", "openrouter"],
)


async def test_text_comes_in_pieces_and_then_whole(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    gate = testing.Gate()
    provider.script(testing.Answer("One", gate, " two.", usage=testing.Usage(100, 40)))
    async with model.ask(make_question(handle)) as stream:
        assert await asyncio.wait_for(anext(stream), 10) == TextDelta("One")
        gate.release()
        rest = [event async for event in stream]
    answer = rest[-1]
    assert text_deltas(rest) == [" two."]
    assert isinstance(answer, Answer)
    assert [part.text for part in answer.content if isinstance(part, Text)] == ["One two."]
    assert (answer.tool_calls, answer.finish) == ((), Finish.STOP)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 40)


async def test_a_tool_is_called_and_its_result_goes_back(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    # Mistral sends a call in one piece.
    call = testing.ToolCall("roll_dice", {"num_sides": 6}, at_once=True)
    provider.script(testing.Answer("I roll.", call), "A 4.")
    first = await ask_for_answer(model, make_question(handle, tools=(ROLL,)))
    second = await ask_for_answer(
        model, make_question(handle, HELLO, *answer_rows(first), tools=(ROLL,))
    )
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("roll_dice", '{"num_sides":6}')
    ]
    assert (first.finish, second.finish) == (Finish.TOOL_CALLS, Finish.STOP)
    assert [request.refused for request in provider.requests] == [None, None]
    assert "heads" in str(provider.requests[1].messages[-1])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ModelRejectedRequest),
        (401, errors.ModelAuthFailed),
        (429, errors.ModelRateLimited),
        (500, errors.ModelError),
        (503, errors.ModelOverloaded),
    ],
)
async def test_each_status_has_its_error(
    provider: ScriptedProvider,
    model: ModelRouter,
    handle: str,
    status: int,
    expected: type[errors.ModelError],
) -> None:
    assert type(await refusal(provider, model, handle, status)) is expected


@pytest.mark.parametrize(
    "fault",
    [
        testing.EmptyAnswer(),
        testing.MalformedSse(),
        testing.ResetConnection(),
        testing.Answer("Half an", testing.HangUp()),
    ],
    ids=["nothing", "malformed", "reset", "hung up"],
)
async def test_a_broken_stream_is_a_model_error(
    provider: ScriptedProvider, model: ModelRouter, handle: str, fault: testing.Scripted
) -> None:
    provider.script(fault)
    with pytest.raises(errors.ModelError):
        await ask_for_events(model, make_question(handle))


async def test_cancelling_closes_the_socket(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("One", testing.Hang()))
    await cancel_after_first_event(model, make_question(handle))
    await provider.requests[0].finished.wait(10)
    assert provider.requests[0].closed_early
