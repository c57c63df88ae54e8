"""Asking a model in tests: the wires that each suite is run over, questions, and rows of a history."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Message,
    Outcome,
    Part,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.errors import ModelError
from holdfast.ports.model import (
    Answer,
    ModelEvent,
    Question,
    TextDelta,
    ToolCallDelta,
    ToolOffer,
    UsageUpdate,
)
from holdfast.testing import HttpError, ScriptedProvider

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


def provider_settings(provider: ScriptedProvider, **more: Any) -> ProviderSettings:
    return ProviderSettings(
        {
            "openai": {"api_key": KEYS[OPENAI], "base_url": provider.openai_url},
            "anthropic": {"api_key": KEYS[ANTHROPIC], "base_url": provider.url},
            "google_ai": {"api_key": KEYS[GOOGLE], "base_url": provider.url},
            "bedrock": {
                "region": "eu-west-1",
                "access_key": "AKIDEXAMPLE",
                "secret_key": "aws-secret-key",
                "base_url": provider.url,
            },
            "mistral": {"api_key": "mistral-secret-key", "base_url": provider.url},
            "openrouter": {"api_key": "openrouter-secret-key", "base_url": provider.openai_url},
            "deepseek": {"api_key": "deepseek-secret-key", "base_url": provider.openai_url},
            "groq": {"api_key": "groq-secret-key", "base_url": provider.openai_url},
            "vllm": {"base_url": provider.url},
            "ollama": {"base_url": provider.url},
        },
        **more,
    )


def row(role: Role, text: str = "", *parts: Part, **more: Any) -> Message:
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


SYSTEM = row(Role.SYSTEM, "You are terse.")
HELLO = row(Role.USER, "Hello.")


def make_question(handle: str, *rows: Message, **more: Any) -> Question:
    settings = more.pop("settings", ModelSettings())
    choice = ModelChoice(handle=handle, context_window=128_000, settings=settings)
    return Question(choice=choice, history=(SYSTEM, *(rows or (HELLO,))), **more)


async def ask_for_events(model: ModelRouter, question: Question) -> list[ModelEvent]:
    async with model.ask(question) as events:
        return [event async for event in events]


async def cancel_after_first_event(model: ModelRouter, question: Question) -> None:
    began = asyncio.Event()

    async def listen() -> None:
        async with model.ask(question) as events:
            async for _ in events:
                began.set()

    asking = asyncio.create_task(listen())
    async with asyncio.timeout(WAIT_SECONDS):
        await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def next_event(events: AsyncIterator[ModelEvent]) -> ModelEvent:
    """The next of what the model says; what its provider counts comes in between."""
    while isinstance(event := await asyncio.wait_for(anext(events), WAIT_SECONDS), UsageUpdate):
        pass
    return event


async def collect(events: AsyncIterator[ModelEvent], into: list[ModelEvent]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 - what came before an error is kept


async def ask_for_answer(model: ModelRouter, question: Question) -> Answer:
    last = (await ask_for_events(model, question))[-1]
    assert isinstance(last, Answer)
    return last


def arguments_of(events: list[ModelEvent]) -> list[str]:
    return [event.arguments for event in events if isinstance(event, ToolCallDelta)]


def text_deltas(events: list[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def result(call_id: str, text: str = "heads", outcome: Outcome = Outcome.FINISHED) -> ToolReturn:
    return ToolReturn(call_id, "flip_coin", outcome, (Text(text),) if text else ())


def answer_rows(answer: Answer) -> tuple[Message, Message]:
    """The rows of an answer with one call, and of its result."""
    call = answer.tool_calls[0]
    return (
        row(Role.ASSISTANT, "", *answer.content, tool_calls=answer.tool_calls, step_id="step-1"),
        row(Role.TOOL, tool_returns=(result(call.id),), step_id="step-1"),
    )


def call_rows(call_id: str) -> tuple[Message, Message]:
    return (
        row(Role.ASSISTANT, tool_calls=(ToolCall(call_id, "flip_coin", "{}"),), step_id=call_id),
        row(Role.TOOL, tool_returns=(result(call_id),), step_id=call_id),
    )


async def refusal(
    provider: ScriptedProvider, model: ModelRouter, handle: str, status: int
) -> ModelError:
    """What comes of an error status: the provider's words are kept, and it is asked once. The engine asks again,
    nobody else."""
    provider.script(HttpError(status, "The dog ate it."))
    with pytest.raises(ModelError) as raised:
        await ask_for_answer(model, make_question(handle))
    assert "The dog ate it." in raised.value.detail
    assert len(provider.requests) == 1
    return raised.value
