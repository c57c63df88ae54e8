"""What is asked of a model reaches its provider, or is told."""

from tests.contract.asking import (
    KEYS,
    OPENAI,
    RESPONSES,
    ROLL,
    answered,
    ask,
)

from holdfast.adapters.models.router import ModelRouter
from holdfast.core.models import ModelSettings
from holdfast.testing import ScriptedProvider


async def test_the_question_reaches_the_provider_as_asked(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    settings = ModelSettings(temperature=0.25, max_output_tokens=77)
    await answered(model, ask(handle, settings=settings))
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
            sent = body["max_tokens"], body["temperature"], body["system"][0]["text"]
        case _:
            options = body["generationConfig"]
            system = body["systemInstruction"]["parts"][0]["text"]
            sent = options["maxOutputTokens"], options["temperature"], system
    assert sent == (77, 0.25, "You are terse.")


async def test_a_response_format_goes_to_openai_as_it_is(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    await answered(model, ask(OPENAI, settings=ModelSettings(response_format=form)))
    assert provider.requests[0].body["response_format"] == form


async def test_a_response_format_goes_to_responses_in_their_form(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    settings = ModelSettings(response_format=form, verbosity="low")
    await answered(model, ask(RESPONSES, settings=settings))
    assert provider.requests[0].body["text"] == {
        "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
        "verbosity": "low",
    }


async def test_a_tools_schema_is_rewritten_only_if_it_must_be_strict(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    for strict in (None, True):
        settings = ModelSettings(strict=strict)
        await answered(model, ask(OPENAI, tools=(ROLL,), settings=settings))
    loose, strict_one = (request.tools[0]["function"] for request in provider.requests)
    assert loose == {"name": "roll_dice", "description": "Roll.", "parameters": ROLL.parameters}
    assert strict_one["strict"] is True
    assert strict_one["parameters"]["additionalProperties"] is False
