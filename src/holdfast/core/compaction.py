"""Compaction: when a context must be reduced, and which messages are evicted. ``engine/compact`` carries it out.

A context is only cut where no tool call is open. So a result is never separated from its call, and held calls stay in
the context (wire-v1 §7.9).
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Any

from msgspec import Struct

from holdfast.core.context import SLIDING_WINDOW_MODES, estimate_tokens, message_tokens
from holdfast.core.messages import Message, Role

# The share of the window above which a step is followed by a compaction.
FULL_SHARE = 0.9
# How often a model call that overflowed the window is compacted and repeated before the run fails.
MAX_OVERFLOW_RETRIES = 3
# A sliding window evicts this much more of the messages in each round until the rest fits.
_STEP_SHARE = 0.1


class Trigger(StrEnum):
    """Why a context is compacted; the values are part of the wire (wire-v1 §7.9)."""

    OVERFLOW = "context_window_exceeded"
    FULL = "post_step_context_check"
    REQUESTED = "manual"


class CompactionStats(Struct, frozen=True, kw_only=True):
    trigger: str
    context_window: int
    messages_count_before: int
    messages_count_after: int
    context_tokens_before: int | None = None
    context_tokens_after: int | None = None


class Eviction(Struct, frozen=True):
    """The messages that leave the context, and those that stay after the system message and the summary."""

    evicted: tuple[Message, ...]
    kept: tuple[Message, ...]


def is_full(history: Sequence[Message], tokens: int, window: int, new_count: int = 0) -> bool:
    """Whether the window is nearly full and compaction would help: not if the system message or the new messages
    alone fill it."""
    limit = FULL_SHARE * window
    return (
        tokens > limit
        and system_tokens(history) <= limit
        and evictable_count(history, new_count) > 0
    )


def system_tokens(history: Sequence[Message]) -> int:
    return estimate_tokens(history[0].text) if history else 0


def count_unanswered(history: Sequence[Message], input_ids: Collection[str]) -> int:
    """How many messages at the end belong to this input, which the model has not answered yet."""
    return sum(1 for _ in takewhile(lambda row: row.id in input_ids, reversed(history)))


def evictable_count(history: Sequence[Message], new_count: int = 0) -> int:
    """How many messages after the system message may be evicted. The ``new_count`` unanswered ones at the end stay."""
    cuts = list(_cuts(history[1 : len(history) - new_count]))
    return cuts[-1] if cuts else 0


def choose_eviction(
    history: Sequence[Message],
    *,
    settings: Mapping[str, Any],
    available_tokens: int,
    new_count: int = 0,
) -> Eviction | None:
    """Choose what to evict; None if nothing may be evicted. A sliding window keeps as much of the end as fits
    ``available_tokens``, starting with an answer. The other modes, and a window in which nothing fits, evict all they may."""
    messages = history[1 : len(history) - new_count]
    cuts = list(_cuts(messages))
    if not cuts:
        return None
    cut_at = cuts[-1]
    if settings.get("mode") in SLIDING_WINDOW_MODES:
        share = float(settings.get("sliding_window_percentage") or 0)
        sizes = [message_tokens(row) for row in history[1:]]
        answers = [
            cut for cut in cuts if cut > 1 and cut < len(messages) and _is_answer(messages[cut])
        ]
        fitting = (
            cut
            for cut in _sliding_cuts(answers, len(messages), share)
            if sum(sizes[cut:]) <= available_tokens
        )
        cut_at = next(fitting, cut_at)
    return Eviction(tuple(messages[:cut_at]), tuple(history[1 + cut_at :]))


def _sliding_cuts(cuts: Sequence[int], rows: int, share: float) -> Iterator[int]:
    """The first possible cut of each round: after 40 % of the messages by default, then 50 %, and so on."""
    share += _STEP_SHARE
    while share < 1:
        least = math.ceil(round(share * rows, 6))
        yield from [cut for cut in cuts if cut >= least][:1]
        share += _STEP_SHARE


def _cuts(messages: Sequence[Message]) -> Iterator[int]:
    """The message counts after which no call is open. A cut that would evict only an old summary is left out."""
    open_call_ids: set[str] = set()
    has_new = False
    for count, row in enumerate(messages, 1):
        open_call_ids |= {call.id for call in row.tool_calls}
        open_call_ids -= {item.call_id for item in row.tool_returns}
        has_new = has_new or row.role is not Role.SUMMARY
        if has_new and not open_call_ids:
            yield count


def _is_answer(row: Message) -> bool:
    return row.role is Role.ASSISTANT or (row.role is Role.APPROVAL and bool(row.tool_calls))
