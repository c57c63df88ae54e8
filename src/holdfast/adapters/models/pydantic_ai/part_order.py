"""Where a part stood among the calls of its answer: a row keeps words and calls apart, a provider wants the order.

OpenAI refuses a thought that is not followed by what came of it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelResponsePart, TextPart, ThinkingPart, ToolCallPart

_AFTER_CALLS = "after_calls"


def with_position(part: TextPart | ThinkingPart, calls_before: int) -> dict[str, Any] | None:
    """The part's details, with its place if it came after a call."""
    if not calls_before:
        return part.provider_details
    return {**(part.provider_details or {}), _AFTER_CALLS: calls_before}


def restore_order(
    parts: Sequence[TextPart | ThinkingPart], calls: Sequence[ToolCallPart]
) -> Iterator[ModelResponsePart]:
    """Parts and calls as they came."""
    waiting = list(parts)
    for number, call in enumerate(calls):
        while waiting and _calls_before(waiting[0]) <= number:
            yield waiting.pop(0)
        yield call
    yield from waiting


def _calls_before(part: TextPart | ThinkingPart) -> int:
    return int((part.provider_details or {}).get(_AFTER_CALLS, 0))
