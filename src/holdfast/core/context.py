"""Estimating how full the model's window is, and the default compaction settings."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.messages import Message, Role, Text, Thinking, VisiblePart

# English text and JSON take about four bytes per token with all current tokenizers.
BYTES_PER_TOKEN = 4

# (context window up to, number of open files, characters of each file) (wire-v1 §2.2.1).
_FILE_LIMITS = (
    (8_000, 3, 5_000),
    (32_000, 5, 15_000),
    (128_000, 10, 25_000),
    (200_000, 10, 40_000),
)
_LARGEST_FILE_LIMITS = (15, 40_000)

# A tool's return is cut to this many characters per token of the window, but never below the minimum.
_RETURN_SHARE = 0.8
_MIN_RETURN_CHARS = 5_000

SLIDING_WINDOW = "sliding_window"
# Modes that keep the end of a conversation, and modes in which the agent's own model writes the summary.
SLIDING_WINDOW_MODES = (SLIDING_WINDOW, "self_compact_sliding_window")
SELF_COMPACTING_MODES = ("self_compact_all", "self_compact_sliding_window")
_SUMMARY_PROMPT = (
    "Summarise the conversation below for the assistant who has to go on with it and will no longer see it. "
    "Keep who the user is and what they want, decisions and their reasons, results of tool calls that still "
    "matter, open questions and what was promised. Write plain prose, no more than a page."
)
_WINDOW_PROMPT = (
    "The oldest part of a conversation is about to leave the assistant's view; the newer part stays. "
    "Summarise the oldest part, given below, so that the rest can be understood without it: facts, decisions, "
    "results that still matter, open questions. Write plain prose, no more than half a page."
)
_PROMPTS = {
    "all": _SUMMARY_PROMPT,
    "self_compact_all": _SUMMARY_PROMPT,
    SLIDING_WINDOW: _WINDOW_PROMPT,
    "self_compact_sliding_window": _WINDOW_PROMPT,
}


def estimate_tokens(text: str) -> int:
    """An estimate of the text's tokens, since the provider's count is only known after the call."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """An estimate of the tokens of a message."""
    words = [message.text, *(part.text for part in message.content if isinstance(part, Thinking))]
    for call in message.tool_calls:
        words += [call.name, call.arguments]
    words += [item.text for item in message.tool_returns]
    return sum(map(estimate_tokens, words))


def schema_tokens(schemas: Sequence[Mapping[str, Any]]) -> int:
    return estimate_tokens(msgspec.json.encode(schemas).decode()) if schemas else 0


def max_return_chars(window: int) -> int:
    """How many characters of one tool return a window of this size can take (wire-v1 §6.8, §7.4)."""
    return max(_MIN_RETURN_CHARS, int(_RETURN_SHARE * window))


def truncate_returns(rows: Sequence[Message], window: int) -> tuple[Message, ...]:
    """Cut tool returns that are so long that one alone would fill the window (wire-v1 §7.4)."""
    limit = max_return_chars(window)
    return tuple(_truncate_row(row, limit) if row.tool_returns else row for row in rows)


def _truncate_row(row: Message, limit: int) -> Message:
    if all(len(item.text) <= limit for item in row.tool_returns):
        return row
    returns = tuple(
        replace(item, content=tuple(_truncate_part(part, limit) for part in item.content))
        for item in row.tool_returns
    )
    return replace(row, tool_returns=returns)


def _truncate_part(part: VisiblePart, limit: int) -> VisiblePart:
    if not isinstance(part, Text) or len(part.text) <= limit:
        return part
    return Text(f"{part.text[:limit]}... [truncated {len(part.text) - limit} chars]")


def without_unfinished_end(rows: Sequence[Message]) -> Sequence[Message]:
    """The messages without those at the end that are incomplete: calls without results, reasoning without an answer."""
    answered = {item.call_id for row in rows for item in row.tool_returns}
    end = len(rows)
    while end and _is_unfinished(rows[end - 1], answered):
        end -= 1
    return rows[:end]


def _is_unfinished(row: Message, answered: set[str]) -> bool:
    if row.tool_calls:
        return any(call.id not in answered for call in row.tool_calls)
    only_thoughts = bool(row.content) and all(isinstance(part, Thinking) for part in row.content)
    return row.role is Role.ASSISTANT and only_thoughts


def find_section(text: str, tag: str) -> str:
    """The first ``<tag>…</tag>`` of a compiled system message, tags included; empty if there is none."""
    found = re.search(rf"<{tag}>.*?</{tag}>", text, re.DOTALL)
    return found.group() if found else ""


def find_directories(text: str) -> str:
    """The section about folders and files of a compiled system message. It ends at its last end: files may contain others."""
    found = re.search(
        r"^<directories>\n<file_limits>.*^</directories>$", text, re.DOTALL | re.MULTILINE
    )
    return found.group() if found else ""


def file_limits(context_window: int) -> tuple[int, int]:
    """The maximum number of open files, and of characters shown of each."""
    for window, files, characters in _FILE_LIMITS:
        if context_window <= window:
            return files, characters
    return _LARGEST_FILE_LIMITS


def compaction_settings(
    summary_handle: str, chosen: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The caller's settings, with defaults for the missing ones. ``summary_handle``: the default summariser."""
    given = {key: value for key, value in (chosen or {}).items() if value is not None}
    mode = given.get("mode", SLIDING_WINDOW)
    return {
        "model": summary_handle,
        "model_settings": None,
        "prompt": _PROMPTS.get(mode, _WINDOW_PROMPT),
        "prompt_acknowledgement": False,
        "clip_chars": 50_000,
        "mode": mode,
        "sliding_window_percentage": 0.3,
    } | given


def update_compaction_settings(
    current: Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None,
    *,
    summary_handle: str,
    new_summary_handle: str,
) -> dict[str, Any]:
    """The settings after an update, which applies field by field. A new mode or provider resets its defaults."""
    settings = dict(current or {})
    changed_fields = {key: value for key, value in (changes or {}).items() if value is not None}
    if changed_fields.get("mode", settings.get("mode")) != settings.get("mode"):
        settings.pop("prompt", None)
    if settings.get("model") == summary_handle:
        settings.pop("model")
    return compaction_settings(new_summary_handle, settings | changed_fields)
