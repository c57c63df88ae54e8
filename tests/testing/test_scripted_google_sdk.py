"""Google's own client against the scripted provider."""

from typing import Any

import pytest
from google import genai
from google.genai.errors import ClientError, ServerError
from google.genai.types import FinishReason, GenerateContentResponse, Part

from holdfast.testing import (
    Answer,
    Gate,
    HttpError,
    RedactedThinking,
    ScriptedProvider,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

MODEL = "gemini-scripted"
FULL = Answer(
    Thinking("Let me think.", signature="c2lnbmVk"),
    Text("I roll the dice."),
    RedactedThinking("aGlkZGVu"),
    ToolCall("roll_dice", {"num_sides": 16}, id="call_1"),
    ToolCall("look", {}),
    usage=Usage(100, 50, cached_input_tokens=20, reasoning_tokens=7),
)


def parts(response: GenerateContentResponse) -> list[Part]:
    [candidate] = response.candidates or []
    assert candidate.content is not None
    return candidate.content.parts or []


def check(found: list[Part], last: GenerateContentResponse) -> None:
    thoughts = [part for part in found if part.thought]
    assert "".join(part.text or "" for part in thoughts) == "Let me think."
    words = [part for part in found if part.text and not part.thought]
    assert "".join(part.text or "" for part in words) == "I roll the dice."
    assert words[-1].thought_signature == b"signed"
    first, second = (part for part in found if part.function_call)
    assert first.thought_signature == b"hidden"
    assert first.function_call is not None
    called = first.function_call
    assert (called.id, called.name, called.args) == ("call_1", "roll_dice", {"num_sides": 16})
    assert second.function_call is not None
    assert (second.function_call.id, second.function_call.args) == ("call_00000001", {})
    [candidate] = last.candidates or []
    assert candidate.finish_reason is FinishReason.STOP
    usage = last.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count) == (100, 43)
    assert (usage.cached_content_token_count, usage.thoughts_token_count) == (20, 7)
    assert usage.total_token_count == 150


async def read_stream(client: genai.Client) -> list[GenerateContentResponse]:
    stream = await client.aio.models.generate_content_stream(model=MODEL, contents="hi")
    return [response async for response in stream]


async def test_an_answer_comes_whole(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    provider.script(FULL)
    response = await google_client.aio.models.generate_content(model=MODEL, contents="hi")
    check(parts(response), response)
    (request,) = provider.requests
    assert (request.wire, request.model, request.stream) == ("google", MODEL, False)
    assert (request.user_text, request.api_key) == ("hi", "sk-test")


async def test_an_answer_is_streamed_into_the_same_answer(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    provider.script(FULL)
    responses = await read_stream(google_client)
    check([part for response in responses for part in parts(response)], responses[-1])
    assert len(responses) > 5
    assert provider.requests[0].stream


async def test_a_signature_that_nothing_follows_stands_alone(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    provider.script(Answer(Thinking("Hm.", signature="c2lnbmVk")))
    found = [part for response in await read_stream(google_client) for part in parts(response)]
    assert [part.thought_signature for part in found] == [None, b"signed", None]


async def test_a_gate_holds_the_stream(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    gate = Gate()
    provider.script(Answer("One", gate, " two."))
    stream = await google_client.aio.models.generate_content_stream(model=MODEL, contents="hi")
    assert parts(await anext(stream))[0].text == "One"
    await gate.reached.wait()
    gate.release()
    rest = [part.text for response in [r async for r in stream] for part in parts(response)]
    assert rest == [" two.", ""]


@pytest.mark.parametrize(
    ("finish", "told"),
    [
        ("length", FinishReason.MAX_TOKENS),
        ("content_filter", FinishReason.SAFETY),
        ("RECITATION", FinishReason.RECITATION),
    ],
)
async def test_the_finish_reason_has_googles_name(
    provider: ScriptedProvider, google_client: genai.Client, finish: str, told: FinishReason
) -> None:
    provider.script(Answer("Well", finish=finish))
    response = await google_client.aio.models.generate_content(model=MODEL, contents="hi")
    assert (response.candidates or [])[0].finish_reason is told


async def test_arguments_that_are_no_object_stand_inside_one(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    provider.script(Answer(ToolCall("look", "{not json")))
    response = await google_client.aio.models.generate_content(model=MODEL, contents="hi")
    called = parts(response)[0].function_call
    assert called is not None
    assert called.args == {"arguments": "{not json"}


@pytest.mark.parametrize(
    ("status", "kind", "name"),
    [
        (400, ClientError, "INVALID_ARGUMENT"),
        (429, ClientError, "RESOURCE_EXHAUSTED"),
        (503, ServerError, "UNAVAILABLE"),
    ],
)
async def test_an_error_is_the_clients_own(
    provider: ScriptedProvider,
    google_client: genai.Client,
    status: int,
    kind: type[ClientError | ServerError],
    name: str,
) -> None:
    provider.script(HttpError(status, "No."), HttpError(status, "No."))
    with pytest.raises(kind) as raised:
        await google_client.aio.models.generate_content(model=MODEL, contents="hi")
    assert (raised.value.code, raised.value.status, raised.value.message) == (status, name, "No.")
    with pytest.raises(kind):
        await read_stream(google_client)


async def test_an_error_in_the_middle_of_a_stream_ends_it(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    provider.script(Answer("One", HttpError(503, "Enough.")))
    with pytest.raises(ServerError, match="Enough"):
        await read_stream(google_client)


async def test_a_history_that_google_would_refuse_is_refused(
    provider: ScriptedProvider, google_client: genai.Client
) -> None:
    unanswered: list[Any] = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"text": "well?"}]},
    ]
    with pytest.raises(ClientError, match="number of function response parts"):
        await google_client.aio.models.generate_content(model=MODEL, contents=unanswered)
    assert provider.requests[0].refused
