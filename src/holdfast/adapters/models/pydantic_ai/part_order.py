"""The order of an answer's parts. A row stores text and calls separately, but providers want them in order: OpenAI
refuses thinking that is not followed by the part that it belongs to.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelResponsePart, TextPart, ThinkingPart, ToolCallPart

_AFTER_CALLS = "after_calls"


def with_position(part: TextPart | ThinkingPart, calls_before: int) -> dict[str, Any] | None:
    """The part's details, with its position if it came after a call."""
    if not calls_before:
        return part.provider_details
    return {**(part.provider_details or {}), _AFTER_CALLS: calls_before}


def restore_order(
    parts: Sequence[TextPart | ThinkingPart], calls: Sequence[ToolCallPart]
) -> Iterator[ModelResponsePart]:
    """Parts and calls in the order of the answer."""
    waiting = list(parts)
    for number, call in enumerate(calls):
        while waiting and _calls_before(waiting[0]) <= number:
            yield waiting.pop(0)
        yield call
    yield from waiting


def _calls_before(part: TextPart | ThinkingPart) -> int:
    return int((part.provider_details or {}).get(_AFTER_CALLS, 0))
