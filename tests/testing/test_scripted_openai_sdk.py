"""The official OpenAI client against the scripted provider, chat completions and responses."""

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from holdfast.testing import (
    Answer,
    EmptyAnswer,
    HangUp,
    HttpError,
    MalformedJson,
    MalformedSse,
    RedactedThinking,
    ResetConnection,
    ScriptedProvider,
    Text,
    Thinking,
    ToolCall,
    TruncatedStream,
    Usage,
)

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
FULL = Answer(
    Thinking("Let me think."),
    Text("I roll the dice."),
    ToolCall("roll_dice", {"num_sides": 16}, id="call_1"),
    ToolCall("look", {}),
    usage=Usage(100, 50, cached_input_tokens=20, cache_write_tokens=5, reasoning_tokens=7),
)


async def test_a_chat_answer_comes_whole(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(FULL)
    completion = await openai_client.chat.completions.create(model="gpt-4o", messages=HI)
    (choice,) = completion.choices
    assert choice.message.content == "I roll the dice."
    assert choice.message.model_extra == {"reasoning_content": "Let me think."}
    assert choice.finish_reason == "tool_calls"
    first, second = choice.message.tool_calls or []
    assert first.type == "function"
    assert (first.id, first.function.name) == ("call_1", "roll_dice")
    assert json.loads(first.function.arguments) == {"num_sides": 16}
    assert second.id == "call_00000001"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (100, 150)
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 20
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.reasoning_tokens == 7


async def test_a_chat_answer_is_streamed(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(FULL)
    stream = await openai_client.chat.completions.create(
        model="gpt-4o", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    words: list[str] = []
    thoughts: list[str] = []
    arguments: dict[int, list[str]] = {}
    finish, usage = None, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            words.append(choice.delta.content or "")
            thoughts.append((choice.delta.model_extra or {}).get("reasoning_content", ""))
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                arguments.setdefault(call.index, []).append(call.function.arguments or "")
    assert ("".join(words), "".join(thoughts)) == ("I roll the dice.", "Let me think.")
    assert len([word for word in words if word]) == 4
    assert len(arguments[0]) > 2
    assert json.loads("".join(arguments[0])) == {"num_sides": 16}
    assert finish == "tool_calls"
    assert usage is not None
    assert usage.total_tokens == 150


async def test_chat_usage_is_streamed_only_when_asked_for(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    stream = await openai_client.chat.completions.create(model="gpt", messages=HI, stream=True)
    assert [chunk.usage async for chunk in stream if chunk.usage is not None] == []


async def test_a_response_comes_whole(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(FULL)
    response = await openai_client.responses.create(
        model="gpt-5", input="hi", include=["reasoning.encrypted_content"]
    )
    assert response.status == "completed"
    assert response.output_text == "I roll the dice."
    thought, _, call, _ = response.output
    assert thought.type == "reasoning"
    assert thought.summary[0].text == "Let me think."
    assert thought.encrypted_content == "c2NyaXB0ZWQ="
    assert call.type == "function_call"
    assert (call.call_id, json.loads(call.arguments)) == ("call_1", {"num_sides": 16})
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 20
    assert response.usage.output_tokens_details.reasoning_tokens == 7


async def test_a_response_is_streamed_into_the_same_response(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(Answer(RedactedThinking("hidden"), *FULL.parts, usage=FULL.usage))
    async with openai_client.responses.stream(model="gpt-5", input="hi") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds.count("response.output_text.delta") == 4
    assert kinds.count("response.reasoning_summary_text.delta") == 3
    assert kinds.count("response.function_call_arguments.delta") > 2
    assert [item.type for item in final.output] == [
        "reasoning",
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert final.output_text == "I roll the dice."
    assert final.usage is not None
    assert final.usage.total_tokens == 150


async def test_a_response_that_ran_out_of_room_is_incomplete(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(Answer("I was going to", finish="length"))
    response = await openai_client.responses.create(model="gpt-5", input="hi")
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
async def test_an_error_status_is_the_clients_own_error(
    provider: ScriptedProvider,
    openai_client: openai.AsyncOpenAI,
    status: int,
    expected: type[openai.APIStatusError],
) -> None:
    fault = HttpError(status, "Not today.", headers={"retry-after": "3"})
    provider.script(fault, fault)
    with pytest.raises(expected, match=r"Not today\.") as caught:
        await openai_client.chat.completions.create(model="gpt", messages=HI)
    assert caught.value.response.headers["retry-after"] == "3"
    with pytest.raises(expected, match=r"Not today\."):
        await openai_client.responses.create(model="gpt", input="hi", stream=True)


async def test_an_error_may_have_a_code_of_its_own(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(HttpError(429, "Pay.", type="insufficient_quota", code="insufficient_quota"))
    with pytest.raises(openai.RateLimitError) as caught:
        await openai_client.chat.completions.create(model="gpt", messages=HI)
    assert (caught.value.type, caught.value.code) == ("insufficient_quota", "insufficient_quota")


async def test_a_hang_up_in_mid_stream_is_an_error(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(Answer("One two", HangUp(), "three"))
    stream = await openai_client.chat.completions.create(model="gpt", messages=HI, stream=True)
    chunks = aiter(stream)
    heard = [(await anext(chunks)).choices[0].delta.content for _ in range(3)]
    assert heard == ["", "One", " two"]
    with pytest.raises(openai.APIConnectionError):
        await anext(chunks)
    (request,) = provider.requests
    await request.finished.wait()
    assert not request.closed_early


async def test_a_truncated_stream_just_ends(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(TruncatedStream(after=2, answer=Answer("One two three")))
    stream = await openai_client.chat.completions.create(model="gpt", messages=HI, stream=True)
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["", "One"]


@pytest.mark.parametrize(
    "fault",
    [HangUp(), ResetConnection(), TruncatedStream(after=1)],
    ids=lambda fault: type(fault).__name__,
)
async def test_a_broken_connection_is_an_error_of_the_connection(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI, fault: Any
) -> None:
    provider.script(Answer(fault) if isinstance(fault, HangUp) else fault)
    with pytest.raises(openai.APIConnectionError):
        await openai_client.chat.completions.create(model="gpt", messages=HI)


async def test_a_malformed_body_cannot_be_read(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(MalformedJson(), EmptyAnswer())
    for _ in range(2):
        with pytest.raises((openai.APIResponseValidationError, json.JSONDecodeError)):
            await openai_client.chat.completions.create(model="gpt", messages=HI)


async def test_malformed_events_cannot_be_read(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script(MalformedSse())
    stream = await openai_client.chat.completions.create(model="gpt", messages=HI, stream=True)
    with pytest.raises(json.JSONDecodeError):
        await anext(aiter(stream))


async def test_a_broken_history_is_refused_and_uses_up_no_answer(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    provider.script("For the sound history.")
    broken: list[ChatCompletionMessageParam] = [
        *HI,
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
    ]
    with pytest.raises(openai.BadRequestError, match="preceeding message") as caught:
        await openai_client.chat.completions.create(model="gpt", messages=broken)
    assert caught.value.type == "invalid_request_error"
    assert "preceeding message" in (provider.requests[0].refused or "")
    completion = await openai_client.chat.completions.create(model="gpt", messages=HI)
    assert completion.choices[0].message.content == "For the sound history."


async def test_a_broken_input_is_refused(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.BadRequestError, match="No tool call found"):
        await openai_client.responses.create(
            model="gpt",
            input=[{"type": "function_call_output", "call_id": "call_1", "output": "7"}],
        )


async def test_the_models_are_listed(
    provider: ScriptedProvider, openai_client: openai.AsyncOpenAI
) -> None:
    assert [model.id async for model in openai_client.models.list()] == ["scripted-model"]
