"""The official Anthropic client against the scripted provider."""

import json

import anthropic
import pytest
from anthropic.types import MessageParam

from holdfast.testing import (
    Answer,
    Gate,
    HangUp,
    HttpError,
    MalformedSse,
    RedactedThinking,
    ScriptedProvider,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

HI: list[MessageParam] = [{"role": "user", "content": "hi"}]
FULL = Answer(
    Thinking("Let me think.", signature="signed"),
    RedactedThinking("hidden"),
    Text("I roll the dice."),
    ToolCall("roll_dice", {"num_sides": 16}, id="toolu_1"),
    ToolCall("look", {}),
    usage=Usage(100, 50, cached_input_tokens=20, cache_write_tokens=5, reasoning_tokens=7),
)


def check(message: anthropic.types.Message) -> None:
    thought, hidden, text, call, other = message.content
    assert thought.type == "thinking"
    assert (thought.thinking, thought.signature) == ("Let me think.", "signed")
    assert hidden.type == "redacted_thinking"
    assert hidden.data == "hidden"
    assert text.type == "text"
    assert text.text == "I roll the dice."
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("toolu_1", "roll_dice", {"num_sides": 16})
    assert other.type == "tool_use"
    assert (other.id, other.input) == ("toolu_00000001", {})
    assert message.stop_reason == "tool_use"
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (75, 50)
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (20, 5)


async def test_a_message_comes_whole(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    provider.script(FULL)
    check(await anthropic_client.messages.create(model="claude", max_tokens=100, messages=HI))


async def test_a_message_is_streamed_into_the_same_message(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    provider.script(FULL)
    async with anthropic_client.messages.stream(
        model="claude", max_tokens=100, messages=HI
    ) as stream:
        events = [event async for event in stream]
        check(await stream.get_final_message())
    kinds = [event.type for event in events]
    assert kinds.count("text") == 4
    assert kinds.count("input_json") > 2


async def test_a_gate_holds_the_stream_until_the_test_opens_it(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    gate = Gate("half-way")
    provider.script(Answer("One ", gate, "two."))
    async with anthropic_client.messages.stream(
        model="claude", max_tokens=100, messages=HI
    ) as stream:
        words = aiter(stream.text_stream)
        assert await anext(words) == "One"
        await gate.reached.wait()
        assert not provider.requests[0].finished.happened
        gate.release()
        assert [word async for word in words] == [" ", "two."]
        assert len((await stream.get_final_message()).content) == 1


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (404, "not_found_error", anthropic.NotFoundError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
async def test_an_error_status_is_the_clients_own_error(
    provider: ScriptedProvider,
    anthropic_client: anthropic.AsyncAnthropic,
    status: int,
    kind: str,
    expected: type[anthropic.APIStatusError],
) -> None:
    provider.script(HttpError(status, "Not today."))
    with pytest.raises(expected, match=r"Not today\.") as caught:
        await anthropic_client.messages.create(model="claude", max_tokens=100, messages=HI)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"] == {"type": kind, "message": "Not today."}


async def test_a_hang_up_in_mid_stream_is_an_error(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    provider.script(Answer("One two", HangUp()))
    async with anthropic_client.messages.stream(
        model="claude", max_tokens=100, messages=HI
    ) as stream:
        with pytest.raises(Exception, match="incomplete chunked read"):
            [word async for word in stream.text_stream]


async def test_malformed_events_cannot_be_read(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    provider.script(MalformedSse())
    stream = await anthropic_client.messages.create(
        model="claude", max_tokens=100, messages=HI, stream=True
    )
    with pytest.raises(json.JSONDecodeError):
        await anext(aiter(stream))


async def test_a_broken_history_is_refused(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    broken: list[MessageParam] = [
        *HI,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "roll", "input": {}}],
        },
        *HI,
    ]
    with pytest.raises(anthropic.BadRequestError, match="immediately after: toolu_1") as caught:
        await anthropic_client.messages.create(model="claude", max_tokens=100, messages=broken)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert provider.requests[0].refused is not None


async def test_the_models_are_listed(
    provider: ScriptedProvider, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    assert [model.id async for model in anthropic_client.models.list()] == ["scripted-model"]
