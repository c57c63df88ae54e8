"""Summaries: the transcript that a summary is written from, and the message that stores it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.compaction import CompactionStats
from holdfast.core.context import BYTES_PER_TOKEN
from holdfast.core.messages import Image, Message, Role, ToolCall, ToolReturn
from holdfast.core.models import ModelSettings

# In a transcript that is too long, each entry is cut to this length.
_MAX_ENTRY_CHARS = 1_000
# If it is still too long, its middle is left out. The beginning gets this share, since the end matters more.
_HEAD_SHARE = 1 / 3
# A summary cannot be compacted again by itself, so it must leave room for the conversation.
_MAX_WINDOW_SHARE = 0.25
TRANSCRIPT_START = "<transcript>"
_TRANSCRIPT_END = "</transcript>"

_SUMMARY_INTRO = "The following is a summary of the previous messages:\n "
_ALL_HIDDEN_NOTE = "Note: prior messages have been hidden from view to save space."
_SOME_HIDDEN_NOTE = "Note: {count} messages from the beginning of the conversation have been hidden from view to save space."


class SummaryEnvelope(Struct, frozen=True, kw_only=True):
    """The JSON text of a summary message, as in V1 (wire-v1 §7.9)."""

    type: str
    message: str
    time: str
    compaction_stats: CompactionStats | None = None

    @property
    def summary(self) -> str:
        """The summary without the note to the model."""
        _, found, summary = self.message.partition(_SUMMARY_INTRO)
        return summary if found else self.message


def pack(summary: str, hidden: int, time: str, stats: CompactionStats, *, some_stay: bool) -> str:
    note = _SOME_HIDDEN_NOTE.format(count=hidden) if some_stay else _ALL_HIDDEN_NOTE
    packed = SummaryEnvelope(
        type="system_alert",
        message=f"{note} {_SUMMARY_INTRO}{summary}",
        time=time,
        compaction_stats=stats,
    )
    return msgspec.json.encode(packed).decode()


def unpack(row: Message) -> SummaryEnvelope:
    """Parse a summary message. A text in another format is taken as the message itself."""
    try:
        return msgspec.json.decode(row.text, type=SummaryEnvelope)
    except msgspec.DecodeError:
        return SummaryEnvelope(type="system_alert", message=row.text, time="")


def latest_summary(context: Sequence[Message]) -> str:
    """The newest summary in the context; empty if there is none."""
    rows = [row for row in context if row.role is Role.SUMMARY]
    return unpack(rows[-1]).summary if rows else ""


def clip_summary(summary: str, chars: int | None, window: int) -> str:
    """Cut a summary to ``chars`` characters (None and 0 mean no limit) and to its share of the window. Lone surrogates,
    which stores and providers refuse, are replaced."""
    summary = summary.strip().encode(errors="replace").decode()
    limit = int(_MAX_WINDOW_SHARE * window) * BYTES_PER_TOKEN
    limit = min(chars or limit, limit)
    return summary if len(summary) <= limit else f"{summary[:limit]}…"


def render_transcript(rows: Sequence[Message], max_chars: int) -> str:
    """The messages as text for the summarizing model, cut to ``max_chars``."""
    entries = [entry for row in rows for entry in _transcript_entries(row)]
    if sum(map(len, entries)) > max_chars:
        entries = [_cut_middle(entry, _MAX_ENTRY_CHARS) for entry in entries]
    text = _cut_middle("\n\n".join(entries), max_chars)
    return f"{TRANSCRIPT_START}\n{text}\n{_TRANSCRIPT_END}"


def _transcript_entries(row: Message) -> Iterator[str]:
    if row.hidden or (row.role is Role.APPROVAL and not row.tool_calls):
        # The server's own notes and the approvals are not part of the conversation.
        return
    if row.role is Role.SUMMARY:
        yield f"summary of what was said before: {unpack(row).summary}"
        return
    words = [row.text] if row.text else []
    pictures = sum(isinstance(part, Image) for part in row.content)
    words += [f"[{pictures} pictures]"] if pictures else []
    if words:
        who = Role.ASSISTANT if row.role is Role.APPROVAL else row.role
        yield f"{who}: {' '.join(words)}"
    yield from (_render_call(call) for call in row.tool_calls)
    yield from (_render_return(item) for item in row.tool_returns)


def _render_call(call: ToolCall) -> str:
    return f"assistant calls {call.name}: {call.arguments}"


def _render_return(item: ToolReturn) -> str:
    return f"{item.name or 'tool'} {item.outcome}: {item.text}"


def _cut_middle(text: str, chars: int) -> str:
    lost = len(text) - chars
    if lost <= 0:
        return text
    head = int(chars * _HEAD_SHARE)
    return f"{text[:head]} [… {lost} characters left out …] {text[len(text) - (chars - head) :]}"


def summary_settings(given: Mapping[str, Any] | None) -> ModelSettings:
    """The caller's model settings that apply to a summary."""
    given = given or {}
    reasoning = given.get("reasoning") or {}
    return ModelSettings(
        max_output_tokens=given.get("max_output_tokens"),
        temperature=given.get("temperature"),
        reasoning_effort=reasoning.get("reasoning_effort") or given.get("effort"),
        verbosity=given.get("verbosity"),
    )
