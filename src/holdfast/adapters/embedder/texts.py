"""Texts before they are sent, and vectors after they were received. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from holdfast.core.embeddings import Vector, to_vector
from holdfast.errors import ModelError

# The size of a text is counted in quarters of a token: an ASCII character is about one quarter, any other about three.
_ASCII_QUARTERS: Final = 1
_OTHER_QUARTERS: Final = 3
# 8,192 tokens, the most that common models accept. A model that accepts less says so: see ``says_too_long``.
MAX_QUARTERS: Final = 4 * 8_192
# A text that is so short is not refused for its length.
MIN_QUARTERS: Final = 4 * 64

_TOO_LONG: Final = re.compile(
    r"context.?(length|window|limit|size)|too (long|large|many (input )?tokens)|less than \d+ tokens"
    r"|maximum .{0,40}tokens|exceeds? .{0,40}(length|tokens)",
    re.IGNORECASE,
)


def prepare_text(text: str, max_quarters: int) -> str:
    """The text as it is sent: never blank, which providers refuse, and cut to about this size."""
    return cut(text, max_quarters) if text.strip() else " "


def cut(text: str, max_quarters: int) -> str:
    if text.isascii():
        return text[: max_quarters // _ASCII_QUARTERS]
    size = 0
    for position, character in enumerate(text):
        size += _ASCII_QUARTERS if character.isascii() else _OTHER_QUARTERS
        if size > max_quarters:
            return text[:position]
    return text


def count_quarters(text: str) -> int:
    ascii_count = len(text.encode("ascii", "ignore"))
    return ascii_count * _ASCII_QUARTERS + (len(text) - ascii_count) * _OTHER_QUARTERS


def says_too_long(error: ModelError) -> bool:
    """Whether the provider refused a text for its length. Each has its own words and status for that."""
    return _TOO_LONG.search(error.detail) is not None


def check_vectors(answer: Sequence[Sequence[float]], count: int) -> tuple[Vector, ...]:
    """The answer as vectors. A ModelError if it has another number of them, or one that is none."""
    if len(answer) != count:
        raise ModelError(
            f"The provider answered with {len(answer)} vectors to {count} texts.", transient=True
        )
    try:
        vectors = tuple(to_vector(numbers) for numbers in answer)
    except (TypeError, ValueError, OverflowError):
        raise ModelError("The provider answered with no vector.", transient=True) from None
    check_dimensions(vectors)
    return vectors


def check_dimensions(vectors: Sequence[Vector]) -> None:
    found = sorted({vector.dimensions for vector in vectors})
    if len(found) > 1:
        lengths = " and ".join(map(str, found))
        raise ModelError(f"The provider mixed vectors of {lengths} numbers.", transient=True)
