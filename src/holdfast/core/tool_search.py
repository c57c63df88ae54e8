"""Text search over tools, ranked with BM25."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.tools import Tool

# The average_length BM25 parameters k1 (saturation of repeated words) and b (penalty for long texts).
_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
# A word in the name counts as often as this.
_NAME_WEIGHT = 3

_WORD = re.compile(r"[^\W_]+")


class ToolMatch(Struct, frozen=True):
    tool: Tool
    # The text that was searched.
    text: str
    # From 1; None without search words.
    rank: int | None
    score: float


def search(tools: Sequence[Tool], query: str, limit: int) -> list[ToolMatch]:
    """The best matches first. Without search words, all tools in the given order."""
    words = set(_words(query))
    if not words:
        return [ToolMatch(tool, _text(tool), None, 0.0) for tool in tools[:limit]]
    scores = _scores([Counter(_weighted_words(tool)) for tool in tools], words)
    matching = [(score, tool) for score, tool in zip(scores, tools, strict=True) if score > 0]
    best = sorted(matching, key=lambda item: (-item[0], item[1].name))[:limit]
    return [
        ToolMatch(tool, _text(tool), rank, score)
        for rank, (score, tool) in enumerate(best, start=1)
    ]


def _scores(documents: list[Counter[str]], words: set[str]) -> list[float]:
    lengths = [document.total() for document in documents]
    average_length = (sum(lengths) / len(lengths) if lengths else 0) or 1
    document_counts = {word: sum(word in document for document in documents) for word in words}

    def score(document: Counter[str], length: int) -> float:
        damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / average_length)
        return sum(
            _inverse_document_frequency(document_counts[word], len(documents))
            * document[word]
            * (_SATURATION + 1)
            / (document[word] + damping)
            for word in words
            if document[word]
        )

    return [score(*item) for item in zip(documents, lengths, strict=True)]


def _inverse_document_frequency(count: int, total: int) -> float:
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def _weighted_words(tool: Tool) -> list[str]:
    return _words(tool.name) * _NAME_WEIGHT + _words(tool.description) + _words(" ".join(tool.tags))


def _text(tool: Tool) -> str:
    return "\n".join(part for part in (tool.name, tool.description, " ".join(tool.tags)) if part)


def _words(text: str) -> list[str]:
    # Also splits names such as getWeatherReport and get_weather_report into words.
    separated = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.casefold() for word in _WORD.findall(separated)]
