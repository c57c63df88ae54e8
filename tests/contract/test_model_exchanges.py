"""The raw request and response of a provider call can be stored, on each wire and for each way to end (wire-v1 §3.6)."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from holdfast import errors, testing
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.pydantic_ai import exchange_recorder
from holdfast.adapters.models.pydantic_ai.merged_stream import merge_stream
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelChoice
from holdfast.ports.model import Exchange, Question, ToolOffer
from holdfast.testing import ScriptedProvider

KEYS = {"openai": "sk-openai-secret-key", "anthropic": "sk-ant-secret-key", "google_ai": "goog-key"}
HANDLES = {
    "chat": "openai/gpt-4o",
    "responses": "openai/gpt-5",
    "anthropic": "anthropic/claude-haiku-4-5",
    "google": "google_ai/gemini-2.5-flash",
}
# Fields that differ between two renderings of one answer.
FLEETING = {
    "id",
    "created",
    "created_at",
    "index",
    "completed_at",
    "item_id",
    "responseId",
    "createTime",
}
ROLL = ToolOffer("roll_dice", "Roll.", {"type": "object", "properties": {}})
ANSWER = testing.Answer(
    testing.Thinking("Shall I? Yes."),
    "I roll the dice.",
    testing.ToolCall(
        "roll_dice", {"sides": 6, "name": "a longer text than one fragment"}, "toolu_1"
    ),
)


@pytest.fixture
async def model(provider: ScriptedProvider) -> AsyncIterator[ModelRouter]:
    settings = ProviderSettings(
        {
            "openai": {"api_key": KEYS["openai"], "base_url": provider.openai_url},
            "anthropic": {"api_key": KEYS["anthropic"], "base_url": provider.url},
            "google_ai": {"api_key": KEYS["google_ai"], "base_url": provider.url},
        }
    )
    router = ModelRouter(settings)
    yield router
    await router.aclose()


@pytest.fixture(params=[*HANDLES.values()], ids=[*HANDLES])
def handle(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def build_question(handle: str, text: str = "Hello.", *, with_exchanges: bool = True) -> Question:
    rows = tuple(
        Message(
            id="message-1",
            agent_id="agent-1",
            thread_id="agent-1",
            role=role,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            content=(Text(words),),
        )
        for role, words in ((Role.SYSTEM, "Be terse."), (Role.USER, text))
    )
    choice = ModelChoice(handle=handle, context_window=128_000)
    return Question(
        choice=choice, history=rows, tools=(ROLL,), exchanges=[] if with_exchanges else None
    )


async def exchanges(model: ModelRouter, question: Question) -> list[Exchange]:
    async with model.ask(question) as events:
        async for _ in events:
            pass
    return question.exchanges or []


async def test_a_stream_is_kept_as_the_answer_that_it_is(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    """The response merged from a stream equals the provider's response to the same request without streaming."""
    provider.script(ANSWER, ANSWER)
    (exchange,) = await exchanges(model, build_question(handle))
    body = provider.requests[0].body
    # Google has the model in the path; the scripted provider adds it to the body.
    assert exchange.request == {key: body[key] for key in exchange.request}
    assert handle.startswith("google") or len(exchange.request) == len(body)
    assert (exchange.status_code, exchange.error) == (200, None)
    whole = await ask_without_stream(provider, handle, exchange.request)
    assert stable_parts(exchange.response) == stable_parts(whole)


async def ask_without_stream(
    provider: ScriptedProvider, handle: str, request: dict[str, Any]
) -> Any:
    path = provider.requests[0].path.replace(":streamGenerateContent", ":generateContent")
    body = {key: value for key, value in request.items() if key not in ("stream", "stream_options")}
    async with httpx.AsyncClient() as http:
        answer = await http.post(provider.url + path.partition("?")[0], json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def stable_parts(value: Any) -> Any:
    """The answer without fields that differ each time and without empty ones."""
    match value:
        case dict():
            inner = {key: stable_parts(item) for key, item in value.items() if key not in FLEETING}
            if isinstance(inner.get("arguments"), str):
                inner["arguments"] = json.loads(inner["arguments"])
            return {key: item for key, item in inner.items() if item not in (None, [], {}, "", 0)}
        case list():
            return [item for item in map(stable_parts, value) if item != {}]
        case _:
            return value


async def test_a_refusal_is_kept_with_its_words(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.HttpError(429, "TEST: slow down"))
    question = build_question(handle)
    with pytest.raises(errors.ModelRateLimited):
        await exchanges(model, question)
    (exchange,) = question.exchanges or []
    assert exchange.status_code == 429
    assert "TEST: slow down" in json.dumps(exchange.response)
    assert "TEST: slow down" in (exchange.error or "")


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    provider.script(testing.Answer("I was about", testing.HangUp()))
    question = build_question(handle)
    with pytest.raises(errors.ModelError):
        await exchanges(model, question)
    (exchange,) = question.exchanges or []
    assert "about" in json.dumps(exchange.response)
    assert exchange.error


async def test_a_provider_that_never_answers_leaves_the_request(model: ModelRouter) -> None:
    settings = ProviderSettings({"openai": {"base_url": "http://127.0.0.1:1/v1"}})
    lost = ModelRouter(settings)
    question = build_question("openai/gpt-4o")
    with pytest.raises(errors.ModelError):
        await exchanges(lost, question)
    await lost.aclose()
    (exchange,) = question.exchanges or []
    assert exchange.request["model"] == "gpt-4o"
    assert (exchange.status_code, exchange.response) == (None, {})
    assert exchange.error


async def test_a_question_that_is_cancelled_leaves_what_was_there(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    gate = testing.Gate()
    provider.script(testing.Answer("Half", gate, " more"))
    question = build_question("openai/gpt-4o")
    task = asyncio.create_task(exchanges(model, question))
    await gate.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.release()
    (exchange,) = question.exchanges or []
    assert exchange.error == "CancelledError"
    assert exchange.response["choices"][0]["message"].get("content", "Half") == "Half"


async def test_no_key_is_kept(provider: ScriptedProvider, model: ModelRouter, handle: str) -> None:
    """Also not a key that is part of the prompt, or that a provider repeats."""
    key = KEYS[handle.partition("/")[0]]
    provider.script(testing.HttpError(401, f"TEST: {key} is wrong"))
    question = build_question(handle, f"My key is {key}.")
    with pytest.raises(errors.ModelError):
        await exchanges(model, question)
    assert key not in repr(question.exchanges)
    assert "[secret hidden]" in json.dumps((question.exchanges or [])[0].request)


async def test_nothing_is_recorded_unless_the_question_asks_for_it(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    """Nor to the next request of the same task."""
    await exchanges(model, heard := build_question(handle))
    await exchanges(model, build_question(handle, with_exchanges=False))
    assert len(provider.requests) == 2
    assert len(heard.exchanges or []) == 1


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", {}),
        (b"<html>no</html>", {"text": "<html>no</html>"}),
        (b"[1]", {"value": [1]}),
        (b'data: {"foo": 1}\n\ndata: {broken\n\n', {"events": [{"foo": 1}]}),
        (b'data: {"choices": "odd"}\n\n', {"object": "chat.completion", "choices": []}),
        (b'data: {"type": "message_start"}\n\n', {"content": []}),
        (
            b'data: {"type":"response.output_text.delta","delta":"Hal"}\ndata: {"type":"response.output_text.delta","delta":"f"}\n',
            {"output": [{"output_text": "Half"}]},
        ),
    ],
)
def test_what_is_not_understood_is_shown_as_it_came(body: bytes, shown: Any) -> None:
    assert merge_stream(body) == shown


def test_a_packed_answer_is_kept_unpacked() -> None:
    whole = gzip.compress(b'{"said": "hello"}')
    assert exchange_recorder._decompress(whole, "gzip") == b'{"said": "hello"}'
    # A response that was cut off is stored as far as it can be parsed.
    assert b"hello".startswith(exchange_recorder._decompress(whole[:-12], "gzip")[10:15])
    assert exchange_recorder._decompress(b"no gzip at all", "gzip") == b""
