"""A history that one provider produced is accepted by each of the others, with everything that can happen in it.

The scripted provider refuses what the real ones would: foreign signatures, orphaned results, odd ids.
"""

from base64 import b64encode

import pytest
from tests.support.model_questions import FLIP, KEYS, PNG, ROLL, ask_for_answer, make_question, row

from holdfast import testing
from holdfast.adapters.models.router import ModelRouter
from holdfast.core.messages import (
    Decision,
    Image,
    Message,
    Outcome,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from holdfast.core.models import ModelSettings
from holdfast.ports.model import Answer, Question
from holdfast.testing import ScriptedProvider

THINKING = ModelSettings(thinking=True, thinking_budget=2000)
PICTURE = Image("image/png", PNG)

BEDROCK = "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0"
MAKERS = [*KEYS, "google_ai/gemini-3-pro-preview", BEDROCK]
READERS = [
    *MAKERS,
    "anthropic/claude-opus-4-8",
    "bedrock/amazon.nova-lite-v1:0",
    "deepseek/deepseek-reasoner",
    "groq/openai/gpt-oss-120b",
    "mistral/mistral-large-latest",
    "openrouter/anthropic/claude-opus-4.5",
]


def _make_signature(signer: str, number: int) -> str:
    return b64encode(f"{signer} {number}".encode()).decode()


def _script(maker: str) -> tuple[testing.Answer, ...]:
    """Two turns; each wire signs its reasoning with its own signature."""
    return (
        testing.Answer(
            testing.Thinking("First I think.", signature=_make_signature(maker, 1)),
            testing.RedactedThinking(_make_signature(maker, 2)),
            "I do both.",
            testing.ToolCall("flip_coin"),
            testing.ToolCall("roll_dice", {"num_sides": 6}),
            testing.ToolCall("flip_coin"),
        ),
        testing.Answer(
            testing.Thinking("So I say.", signature=_make_signature(maker, 3)), "Heads, and a 4."
        ),
        testing.Answer(
            testing.Thinking("Again.", signature=_make_signature(maker, 4)),
            testing.ToolCall("flip_coin"),
        ),
    )


def _build_question(handle: str, rows: list[Message], settings: ModelSettings) -> Question:
    tools = (ROLL, FLIP)
    return make_question(handle, *rows, tools=tools, settings=settings, parallel_tool_calls=True)


def _answer_messages(answer: Answer, step_id: str, *, held: int = 0) -> list[Message]:
    """The messages of an answer whose last ``held`` calls wait for a person."""
    free = answer.tool_calls[: len(answer.tool_calls) - held]
    rows = [row(Role.ASSISTANT, "", *answer.content, tool_calls=free, step_id=step_id)]
    if held:
        waiting = answer.tool_calls[-held:]
        rows.append(row(Role.APPROVAL, tool_calls=waiting, step_id=step_id))
    return rows


async def _history(
    provider: ScriptedProvider, model: ModelRouter, maker: str
) -> tuple[list[Message], list[Message]]:
    """Everything that can happen; and the same with an unfinished tool loop."""
    provider.script(*_script(maker))
    rows = [row(Role.USER, "Flip, roll, and look.", PICTURE)]
    first = await ask_for_answer(model, _build_question(maker, rows, THINKING))
    flip, roll, denied = first.tool_calls
    rows += _answer_messages(first, "step-1", held=2)
    rows += [
        row(
            Role.APPROVAL,
            decisions=(
                Decision(roll.id, approve=True, arguments={"num_sides": 20}),
                Decision(denied.id, approve=False, reason="No."),
            ),
        ),
        row(
            Role.TOOL,
            tool_returns=(
                # The result of a client tool, with an image.
                ToolReturn(flip.id, "flip_coin", Outcome.FINISHED, (Text("heads"), PICTURE)),
                ToolReturn(roll.id, "roll_dice", Outcome.FINISHED, (Text("4"),)),
                ToolReturn(denied.id, "flip_coin", Outcome.DENIED, (Text("Denied: No."),)),
            ),
            step_id="step-1",
        ),
    ]
    second = await ask_for_answer(model, _build_question(maker, rows, THINKING))
    rows += _answer_messages(second, "step-2")
    # Two cancelled answers: one with half a word, one without text.
    rows += [row(Role.USER, "Tell me more."), row(Role.ASSISTANT, "Well, it", step_id="step-3")]
    rows += [row(Role.USER, "Go on."), row(Role.ASSISTANT, step_id="step-4")]
    rows += [row(Role.USER, "And again.")]
    over = list(rows)
    third = await ask_for_answer(model, _build_question(maker, rows, THINKING))
    rows += _answer_messages(third, "step-5")
    call = third.tool_calls[0]
    killed = ToolReturn(call.id, "flip_coin", Outcome.KILLED, (Text("It was stopped."),))
    rows.append(row(Role.TOOL, tool_returns=(killed,), step_id="step-5"))
    assert [request.refused for request in provider.requests] == [None] * 3
    return over, rows


@pytest.mark.parametrize("settings", [ModelSettings(), THINKING], ids=["plain", "thinking"])
@pytest.mark.parametrize("maker", MAKERS)
async def test_a_history_made_on_one_provider_is_accepted_by_all(
    provider: ScriptedProvider, model: ModelRouter, maker: str, settings: ModelSettings
) -> None:
    over, in_the_middle = await _history(provider, model, maker)
    for reader in READERS:
        for rows in (over, in_the_middle):
            asked = len(provider.requests)
            await ask_for_answer(model, _build_question(reader, rows, settings))
            (request,) = provider.requests[asked:]
            assert request.refused is None, (reader, request.refused)


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_history_may_change_its_provider_in_every_turn(
    provider: ScriptedProvider, model: ModelRouter, maker: str
) -> None:
    """Each answer comes from another provider than the one before, within one tool loop."""
    rows, _ = await _history(provider, model, maker)
    for number, reader in enumerate(READERS):
        provider.script(
            testing.Answer(
                testing.Thinking("Mine.", signature=_make_signature(reader, number)),
                # Mistral sends a call in one piece.
                testing.ToolCall("flip_coin", at_once=reader.startswith("mistral/")),
            )
        )
        answer = await ask_for_answer(model, _build_question(reader, rows, THINKING))
        rows += _answer_messages(answer, f"step-turn-{number}")
        call = answer.tool_calls[0]
        returned = ToolReturn(call.id, "flip_coin", Outcome.FINISHED, (Text("tails"),))
        rows.append(row(Role.TOOL, tool_returns=(returned,)))
    assert [request.refused for request in provider.requests] == [None] * (3 + len(READERS))


@pytest.mark.parametrize(
    "call_id", ["x" * 41, "functions.flip:0", "ünïcode", "a b", "call-" + "9" * 80]
)
async def test_ids_from_elsewhere_are_made_acceptable(
    provider: ScriptedProvider, model: ModelRouter, handle: str, call_id: str
) -> None:
    rows = (
        row(Role.USER, "Flip."),
        row(Role.ASSISTANT, tool_calls=(ToolCall(call_id, "flip_coin", "{}"),), step_id="step-1"),
        row(
            Role.TOOL,
            tool_returns=(ToolReturn(call_id, "flip_coin", Outcome.FINISHED, (Text("heads"),)),),
        ),
    )
    for _ in range(2):
        await ask_for_answer(model, make_question(handle, *rows, tools=(FLIP,)))
    once, again = provider.requests
    assert (once.refused, again.refused) == (None, None)
    assert once.messages == again.messages
