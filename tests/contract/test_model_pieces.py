"""The pieces that a model streams add up to the message that is stored."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import product

import pytest
from tests.support.model_questions import next_event

from holdfast import testing
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.events import (
    CallStreamed,
    HiddenReasoningStreamed,
    ReasoningStreamed,
    Streamed,
    TextStreamed,
)
from holdfast.core.messages import Message, Role, Text, Thinking
from holdfast.core.models import GUIDE_HANDLE, ModelChoice, ModelSettings
from holdfast.core.pieces import Piece, PieceKind, pieces
from holdfast.core.turn import Policy
from holdfast.engine.answer_facts import AnswerFacts
from holdfast.ports.model import Answer, ModelEvent, Question, ToolOffer
from holdfast.testing import ScriptedProvider

HANDLES = (
    "openai/gpt-4o",
    "openai/gpt-5",
    "anthropic/claude-haiku-4-5",
    "google_ai/gemini-2.5-flash",
    GUIDE_HANDLE,
)
TOOL = ToolOffer("flip_coin", "Flip.", {"type": "object", "properties": {}})
SETTINGS = ModelSettings(thinking=True, thinking_budget=2000)

SAID: tuple[testing.Part, ...] = (
    testing.Text("One two."),
    testing.Text(""),
    testing.Thinking("I think so."),
    testing.Thinking("", signature="c2lnbmVk"),
    testing.RedactedThinking("aGlkZGVu"),
)
CALLED: tuple[tuple[testing.Part, ...], ...] = (
    (),
    (testing.ToolCall("flip_coin", ""),),
    (testing.ToolCall("flip_coin"), testing.ToolCall("flip_coin", {"a": "b" * 30})),
)


@pytest.fixture
async def model(provider: ScriptedProvider) -> AsyncIterator[ModelRouter]:
    router = ModelRouter(
        ProviderSettings(
            {
                "openai": {"api_key": "k", "base_url": provider.openai_url},
                "anthropic": {"api_key": "k", "base_url": provider.url},
                "google_ai": {"api_key": "k", "base_url": provider.url},
            }
        )
    )
    yield router
    await router.aclose()


def _row(role: Role, answer: Answer | None = None) -> Message:
    return Message(
        id="message-1",
        agent_id="agent-1",
        thread_id="agent-1",
        role=role,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        content=answer.content if answer else (Text("Go on."),),
        tool_calls=answer.tool_calls if answer else (),
    )


async def _events(model: ModelRouter, handle: str) -> list[ModelEvent]:
    choice = ModelChoice(handle=handle, context_window=1000, settings=SETTINGS)
    history = (_row(Role.SYSTEM), _row(Role.USER))
    question = Question(choice=choice, history=history, tools=(TOOL,), parallel_tool_calls=True)
    async with model.ask(question) as events:
        return [event async for event in events]


def _join_facts(events: list[ModelEvent]) -> list[tuple[PieceKind, object]]:
    """What a client has that joins the facts of all pieces."""
    facts = AnswerFacts("message-1", "step-1", Policy(max_steps=1, parallel=True))
    found: dict[int, tuple[PieceKind, object]] = {}
    for event in events:
        for fact in facts.facts_for(event):
            found[fact.piece] = _add_fact(found.get(fact.piece), fact)
    assert list(facts.deferred_facts()) == []
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in sorted(found)]


def _add_fact(before: tuple[PieceKind, object] | None, fact: Streamed) -> tuple[PieceKind, object]:
    match fact:
        case TextStreamed():
            return PieceKind.TEXT, f"{before[1] if before else ''}{fact.text}"
        case ReasoningStreamed():
            return PieceKind.REASONING, f"{before[1] if before else ''}{fact.text}"
        case HiddenReasoningStreamed():
            assert before is None
            return PieceKind.HIDDEN_REASONING, (fact.redacted, fact.data)
        case CallStreamed():
            calls = dict(before[1]) if before else {}  # type: ignore[call-overload]  # such a piece has calls
            calls[fact.call_id] = calls.get(fact.call_id, "") + fact.arguments
            return PieceKind.TOOL_CALLS, calls


def _piece_value(piece: Piece) -> tuple[PieceKind, object]:
    match piece.kind:
        case PieceKind.TOOL_CALLS:
            return piece.kind, {call.id: call.arguments for call in piece.calls}
        case PieceKind.HIDDEN_REASONING:
            (thought,) = piece.parts
            assert isinstance(thought, Thinking)
            return piece.kind, (thought.redacted, thought.signature if thought.redacted else None)
        case _:
            return piece.kind, "".join(
                part.text for part in piece.parts if isinstance(part, Text | Thinking)
            )


def _answers(lengths: range) -> Iterator[testing.Answer]:
    for length in lengths:
        for said in product(SAID, repeat=length):
            for called in CALLED:
                yield testing.Answer(*said, *called)


@pytest.mark.parametrize("handle", HANDLES)
@pytest.mark.parametrize(
    "lengths",
    [range(3), pytest.param(range(3, 4), marks=pytest.mark.slow)],
    ids=["short", "long"],
)
async def test_every_answer_is_stored_as_it_was_streamed(
    provider: ScriptedProvider, model: ModelRouter, handle: str, lengths: range
) -> None:
    for scripted in _answers(lengths):
        provider.script(scripted)
        events = await _events(model, handle)
        answer = events[-1]
        assert isinstance(answer, Answer)
        stored = [_piece_value(piece) for piece in pieces(_row(Role.ASSISTANT, answer))]
        assert _join_facts(events) == stored, scripted


@pytest.mark.parametrize("handle", HANDLES[:-1])
async def test_an_answer_in_pieces_streams_the_same_as_one_at_once(
    provider: ScriptedProvider, model: ModelRouter, handle: str
) -> None:
    parts = (
        testing.Thinking("First I think.", delay_seconds=0.0005),
        testing.RedactedThinking("aGlkZGVu"),
        testing.Text("Then I speak of it.", delay_seconds=0.0005),
        testing.ToolCall("flip_coin", {"a": "b" * 30}, id="call_1"),
    )
    provider.script(testing.Answer(*parts))
    slowly = _join_facts(await _events(model, handle))
    provider.script(
        testing.Answer(
            *(testing.Thinking("First I think."), *parts[1:2], "Then I speak of it.", parts[3])
        )
    )
    assert _join_facts(await _events(model, handle)) == slowly


async def test_redacted_thinking_is_streamed_with_its_data_when_it_arrives(
    provider: ScriptedProvider, model: ModelRouter
) -> None:
    gate = testing.Gate()
    provider.script(testing.Answer(testing.RedactedThinking("aGlkZGVu"), gate, "Yes."))
    choice = ModelChoice(handle=HANDLES[2], context_window=1000, settings=SETTINGS)
    question = Question(choice=choice, history=(_row(Role.SYSTEM), _row(Role.USER)))
    async with model.ask(question) as events:
        assert _join_facts([await next_event(events)]) == [
            (PieceKind.HIDDEN_REASONING, (True, "aGlkZGVu"))
        ]
        gate.release()
        rest = [event async for event in events]
    assert _join_facts(rest) == [(PieceKind.TEXT, "Yes.")]
