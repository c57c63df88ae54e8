"""Which model a conversation uses, and which messages a fork may share."""

from typing import Any

import pytest
from tests.support.values import Make

from holdfast.core.messages import Decision, Message, Outcome, Role, ToolCall, ToolReturn
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.threads import Thread, shareable_messages

OWN = ModelChoice(
    handle="openai/gpt-x",
    context_window=32_000,
    settings=ModelSettings(temperature=0.5, parallel_tool_calls=True),
    model_settings={"temperature": 0.5},
)


@pytest.fixture
def thread(make: Make) -> Thread:
    return make.thread(make.agent(), id="conv-1")


def choose_model(make: Make, **wishes: object) -> ModelChoice:
    return make.thread(make.agent(), **wishes).choose_model(OWN)


def test_a_conversation_follows_its_agent_where_it_says_nothing(make: Make) -> None:
    assert choose_model(make) == OWN
    assert choose_model(make, model="openai/gpt-x") == OWN


def test_another_model_keeps_the_agents_window(make: Make) -> None:
    choice = choose_model(make, model="openai/gpt-y")
    assert (choice.handle, choice.context_window) == ("openai/gpt-y", 32_000)
    assert choice.settings == OWN.settings
    # The caller's JSON for the agent was about another model.
    assert choice.model_settings is None


def test_another_provider_is_not_asked_what_the_agents_is(make: Make) -> None:
    choice = choose_model(make, model="anthropic/claude-x")
    assert choice.settings == ModelSettings(parallel_tool_calls=True)


def test_settings_and_window_of_a_conversation_win(make: Make) -> None:
    settings = ModelSettings(temperature=1.0)
    choice = choose_model(make, settings=settings, context_window_limit=9_000)
    assert (choice.handle, choice.settings, choice.context_window) == (OWN.handle, settings, 9_000)


def make_messages(make: Make, thread: Thread, *roles: str) -> list[Message]:
    """Messages by letter: s(ystem), u(ser), c(all), d(ecision), r(eturn). All calls have the same id."""
    call, back = ToolCall("call_1", "f", "{}"), ToolReturn("call_1", "f", Outcome.FINISHED, ())
    kinds: dict[str, dict[str, Any]] = {
        "s": {"role": Role.SYSTEM},
        "u": {"role": Role.USER},
        "c": {"role": Role.ASSISTANT, "tool_calls": (call,)},
        "d": {"role": Role.APPROVAL, "decisions": (Decision("call_1", approve=True),)},
        "r": {"role": Role.TOOL, "tool_returns": (back,), "content": ()},
    }
    return [make.message(thread, "hi", **kinds[role]) for role in roles]


@pytest.mark.parametrize(
    ("context", "shared"),
    [("s", ""), ("susu", "usu"), ("sucr", "ucr"), ("suc", "u"), ("sucd", "u"), ("sucrucd", "ucru")],
)
def test_a_fork_shares_what_was_said_but_no_unanswered_call(
    make: Make, thread: Thread, context: str, shared: str
) -> None:
    rows = make_messages(make, thread, *context)
    assert list(shareable_messages(rows)) == rows[1 : 1 + len(shared)]


def test_a_fork_ends_with_the_message_it_is_told_to(make: Make, thread: Thread) -> None:
    rows = make_messages(make, thread, *"sucru")
    assert list(shareable_messages(rows, rows[0].id)) == []
    assert list(shareable_messages(rows, rows[1].id)) == rows[1:2]
    assert list(shareable_messages(rows, rows[2].id)) == rows[1:2]
    assert list(shareable_messages(rows, rows[3].id)) == rows[1:4]
