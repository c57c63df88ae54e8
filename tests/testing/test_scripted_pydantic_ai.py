"""pydantic-ai over each wire: what was scripted is what the model is understood to have said."""

import pytest
from pydantic_ai import ModelAPIError, ModelHTTPError
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from holdfast.testing import (
    Answer,
    Hang,
    HangUp,
    HttpError,
    ScriptedProvider,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

HI: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]
FULL = Answer(
    Thinking("Let me think.", signature="c2lnbmVk"),
    Text("I roll the dice."),
    ToolCall("roll_dice", {"num_sides": 16}),
    ToolCall("roll_dice", {"num_sides": 6}),
    usage=Usage(100, 50, cached_input_tokens=20, reasoning_tokens=7),
)
ROLL_DICE = ModelRequestParameters(
    function_tools=[
        ToolDefinition(
            name="roll_dice",
            parameters_json_schema={
                "type": "object",
                "properties": {"num_sides": {"type": "integer"}},
            },
        )
    ]
)


# Asked for more tokens, pydantic-ai streams from Anthropic even where its caller does not.
SETTINGS = ModelSettings(max_tokens=1000)


async def ask(model: Model, messages: list[ModelMessage], *, streamed: bool) -> ModelResponse:
    if not streamed:
        return await model_request(
            model, messages, model_settings=SETTINGS, model_request_parameters=ROLL_DICE
        )
    async with model_request_stream(
        model, messages, model_settings=SETTINGS, model_request_parameters=ROLL_DICE
    ) as stream:
        async for _ in stream:
            pass
        return stream.get()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_everything_scripted_is_understood(
    provider: ScriptedProvider, model: Model, wire: str, streamed: bool
) -> None:
    provider.script(FULL)
    response = await ask(model, HI, streamed=streamed)
    thought, text, first, second = response.parts
    assert isinstance(thought, ThinkingPart)
    assert thought.content == "Let me think."
    signed = wire in ("openai-responses", "anthropic")
    assert thought.signature == ("c2lnbmVk" if signed else None)
    assert isinstance(text, TextPart)
    assert text.content == "I roll the dice."
    assert isinstance(first, ToolCallPart)
    assert isinstance(second, ToolCallPart)
    assert (first.args_as_dict(), second.args_as_dict()) == ({"num_sides": 16}, {"num_sides": 6})
    assert first.tool_call_id != second.tool_call_id
    assert (response.usage.input_tokens, response.usage.output_tokens) == (100, 50)
    assert response.usage.cache_read_tokens == 20
    (request,) = provider.requests
    assert (request.wire, request.stream) == (wire, streamed)
    assert (request.user_text, request.api_key) == ("hi", "sk-test")
    assert request.tool_names == ["roll_dice"]


async def test_what_was_said_is_accepted_as_history(
    provider: ScriptedProvider, model: Model, streamed: bool
) -> None:
    provider.script(FULL, "Seven and three.")
    said = await ask(model, HI, streamed=streamed)
    results = ModelRequest(
        parts=[ToolReturnPart(call.tool_name, "7", call.tool_call_id) for call in said.tool_calls]
    )
    answer = await ask(model, [*HI, said, results], streamed=streamed)
    assert answer.text == "Seven and three."
    assert [request.refused for request in provider.requests] == [None, None]


async def test_a_call_left_unanswered_is_refused(
    provider: ScriptedProvider, model: Model, streamed: bool
) -> None:
    provider.script(FULL)
    said = await ask(model, HI, streamed=streamed)
    with pytest.raises(ModelHTTPError) as caught:
        await ask(model, [*HI, said, *HI], streamed=streamed)
    assert caught.value.status_code == 400
    assert provider.requests[-1].refused is not None


async def test_an_error_status_arrives_as_such(
    provider: ScriptedProvider, model: Model, streamed: bool
) -> None:
    provider.script(HttpError(429, "Slow down."))
    with pytest.raises(ModelHTTPError, match="Slow down") as caught:
        await ask(model, HI, streamed=streamed)
    assert caught.value.status_code == 429


async def test_a_hang_up_is_an_error(
    provider: ScriptedProvider, model: Model, streamed: bool
) -> None:
    provider.script(Answer("One two", HangUp()))
    with pytest.raises(Exception, match=r"(?i)connection|incomplete|disconnected"):
        await ask(model, HI, streamed=streamed)


async def test_a_client_that_leaves_in_mid_stream_is_noticed(
    provider: ScriptedProvider, model: Model, wire: str
) -> None:
    if wire == "google":
        pytest.skip("its client leaves the connection to the garbage collector")
    provider.script(Answer("One two", Hang()))
    async with model_request_stream(model, HI) as stream:
        await anext(aiter(stream))
        (request,) = provider.requests
        assert not request.finished.happened
    await request.finished.wait(10)
    assert request.closed_early
    assert request.closed_at is not None
    assert request.closed_at >= request.received_at


async def test_an_answer_of_nothing_is_nothing(
    provider: ScriptedProvider, model: Model, wire: str
) -> None:
    provider.script(Answer(finish="length"))
    response = await model_request(model, HI, model_settings=SETTINGS)
    assert (response.parts, response.finish_reason) == ([], "length")


async def test_a_provider_that_fails_in_mid_answer_says_why(
    provider: ScriptedProvider, model: Model, streamed: bool
) -> None:
    provider.script(Answer("One two", HttpError(500, "The model fell over.")))
    with pytest.raises(ModelAPIError, match="The model fell over"):
        await ask(model, HI, streamed=streamed)
    await provider.requests[0].finished.wait(10)
    assert not provider.requests[0].closed_early


async def test_arguments_that_are_no_json_go_out_as_they_are(
    provider: ScriptedProvider, model: Model, wire: str, streamed: bool
) -> None:
    provider.script(Answer(ToolCall("roll_dice", '{"num_sides": 1')))
    response = await ask(model, HI, streamed=streamed)
    text = '{"num_sides": 1'
    # Google's arguments are always an object.
    expected = {"arguments": text} if wire == "google" else text
    assert [call.args for call in response.tool_calls] == [expected]
