"""Estimating tokens, and completing the compaction settings."""

from datetime import UTC, datetime

import pytest

from holdfast.core import context
from holdfast.core.messages import (
    Message,
    Outcome,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)

AGENT = "agent-123e4567-e89b-42d3-8456-426614174000"
CALL = ToolCall("call_1", "roll", '{"sides": 6}')


def row(
    role: Role,
    *content: Part,
    calls: tuple[ToolCall, ...] = (),
    returns: tuple[ToolReturn, ...] = (),
) -> Message:
    return Message(
        id="message-1",
        agent_id=AGENT,
        thread_id=AGENT,
        role=role,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        content=content,
        tool_calls=calls,
        tool_returns=returns,
    )


USER = row(Role.USER, Text("hello"))
ASKED = row(Role.ASSISTANT, Text("I will"), calls=(CALL,))
HELD = row(Role.APPROVAL, calls=(CALL,))
ANSWER = ToolReturn("call_1", "roll", Outcome.FINISHED, (Text("4"),))


def test_four_bytes_are_about_a_token() -> None:
    assert context.estimate_tokens("") == 0
    assert context.estimate_tokens("four") == 1
    assert context.estimate_tokens("fives") == 2
    assert context.estimate_tokens("ééé") == 2


def test_a_row_counts_words_thoughts_calls_and_results() -> None:
    said = row(Role.ASSISTANT, Text("four"), Thinking("four"), calls=(CALL,))
    assert context.message_tokens(said) == 1 + 1 + 1 + 3
    assert context.message_tokens(row(Role.TOOL, returns=(ANSWER,))) == 1


@pytest.mark.parametrize(
    ("rows", "counted"),
    [
        ([USER], 1),
        ([USER, HELD], 1),
        ([USER, ASKED, HELD], 1),
        ([USER, row(Role.ASSISTANT, Thinking("hm"))], 1),
        ([USER, ASKED, row(Role.TOOL, returns=(ANSWER,))], 3),
        ([USER, row(Role.ASSISTANT, Text("hi"))], 2),
        ([], 0),
    ],
)
def test_an_unfinished_end_is_not_counted(rows: list[Message], counted: int) -> None:
    assert len(context.without_unfinished_end(rows)) == counted


def test_a_section_is_found_with_its_tags() -> None:
    text = "base\n<rules>\none\n</rules>\n<rest>\n</rest>"
    assert context.find_section(text, "rules") == "<rules>\none\n</rules>"
    assert context.find_section(text, "other") == ""


@pytest.mark.parametrize(
    ("window", "limits"),
    [
        (8_000, (3, 5_000)),
        (8_001, (5, 15_000)),
        (128_000, (10, 25_000)),
        (200_000, (10, 40_000)),
        (1_000_000, (15, 40_000)),
    ],
)
def test_a_larger_window_has_room_for_more_of_each_file(
    window: int, limits: tuple[int, int]
) -> None:
    assert context.file_limits(window) == limits


def test_compaction_settings_are_filled_in() -> None:
    settings = context.compaction_settings("anthropic/small", {"clip_chars": 10, "prompt": None})
    assert settings["model"] == "anthropic/small"
    assert settings["mode"] == "sliding_window"
    assert settings["clip_chars"] == 10
    assert settings["prompt"]


def test_another_mode_brings_its_own_prompt_and_keeps_the_rest() -> None:
    before = context.compaction_settings("openai/small", {"prompt": "mine", "clip_chars": 10})
    after = context.update_compaction_settings(
        before, {"mode": "all"}, summary_handle="openai/small", new_summary_handle="openai/small"
    )
    assert after["prompt"] != "mine"
    assert after["clip_chars"] == 10


def test_another_provider_brings_its_own_summary_model_unless_one_was_chosen() -> None:
    before = context.compaction_settings("openai/small")
    after = context.update_compaction_settings(
        before, None, summary_handle="openai/small", new_summary_handle="anthropic/small"
    )
    assert after["model"] == "anthropic/small"
    chosen = context.compaction_settings("openai/small", {"model": "openai/mine"})
    after = context.update_compaction_settings(
        chosen, None, summary_handle="openai/small", new_summary_handle="anthropic/small"
    )
    assert after["model"] == "openai/mine"


@pytest.mark.parametrize(("window", "limit"), [(100_000, 80_000), (1_000, 5_000)])
def test_no_return_of_a_tool_fills_the_window_by_itself(window: int, limit: int) -> None:
    def result_row(text: str) -> Message:
        result = ToolReturn("call_1", "roll", Outcome.FINISHED, (Text(text), Text("end")))
        return row(Role.TOOL, returns=(result,))

    fits, long, said = result_row("x" * (limit - 4)), result_row("y" * (limit + 7)), row(Role.USER)

    shown = context.truncate_returns([said, fits, long], window)

    assert shown[:2] == (said, fits)
    first, last = shown[2].tool_returns[0].content
    assert first == Text("y" * limit + "... [truncated 7 chars]")
    assert last == Text("end")
