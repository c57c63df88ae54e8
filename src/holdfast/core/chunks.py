"""Splitting the text of a file into the chunks that are indexed and embedded. A chunk knows its lines, so that a hit can be
shown in the file.

The text is never copied whole, nor walked line by line: 100 MB of it are split within seconds."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

# How much of a chunk may be repeated at the beginning of the next one.
MAX_OVERLAP_PERCENT: Final = 15

_PARAGRAPH_END: Final = "\n\n"
_LINE_END: Final = "\n"
# Where a line that is too long is cut: after a sentence, else after a word.
_ENDS_WITHIN_LINE: Final = (". ", "。", " ", "\t")
_NOT_BLANK: Final = re.compile(r"\S")


class Chunk(Struct, frozen=True):
    """A part of a text. Lines are counted from 1, and both are included. A line that is longer than a chunk is in several."""

    text: str
    start_line: int
    end_line: int


def split_text(text: str, chunk_chars: int) -> Iterator[Chunk]:
    """Split a text whose line ends are ``\\n`` into chunks of at most ``chunk_chars`` characters, in their order.

    A chunk ends after a paragraph if one ends in its second half, else after a line, a sentence or a word. Where it does not
    end after a paragraph, the next chunk repeats up to 15 % of it. Nothing but white space is left out."""
    if chunk_chars < 1:
        raise ValueError(f"A chunk has at least one character, not {chunk_chars}.")
    start = counted = 0
    line = 1
    first = _find_text(text, 0)
    if first is not None:
        start = _begin_at(text, 0, first, chunk_chars)
    while first is not None:
        line += text.count(_LINE_END, counted, start)
        counted = start
        end, border = _find_end(text, start, first, chunk_chars)
        chunk = text[start:end].rstrip()
        yield Chunk(chunk, line, line + chunk.count(_LINE_END))
        first = _find_text(text, end)
        if first is not None:
            start = _find_next_start(text, end, first, border, chunk_chars)


def _find_text(text: str, start: int) -> int | None:
    """The first character that is not blank."""
    match = _NOT_BLANK.search(text, start)
    return None if match is None else match.start()


def _begin_at(text: str, start: int, first: int, chunk_chars: int) -> int:
    """Where the chunk of the character ``first`` begins: with the indentation of its line, but not with half a chunk of it."""
    line_start = max(start, text.rfind(_LINE_END, start, first) + 1)
    return line_start if first - line_start < chunk_chars // 2 else first


def _find_end(text: str, start: int, first: int, chunk_chars: int) -> tuple[int, str | None]:
    """Where the chunk ends, and after what; None: in the middle of a word, or at the end of the text."""
    latest = start + chunk_chars
    if latest >= len(text):
        return len(text), None
    earliest = max(start + chunk_chars // 2, first + 1)
    for border in (_PARAGRAPH_END, _LINE_END, *_ENDS_WITHIN_LINE):
        found = text.rfind(border, earliest, latest)
        if found >= 0:
            return found + len(border), border
    return latest, None


def _find_next_start(text: str, end: int, first: int, border: str | None, chunk_chars: int) -> int:
    """Where the chunk after ``end`` begins; ``first`` is its first character that no chunk has yet."""
    overlap = chunk_chars * MAX_OVERLAP_PERCENT // 100
    # After much white space the chunk would hardly have more than what it repeats.
    if border == _PARAGRAPH_END or first - end > overlap:
        return _begin_at(text, end, first, chunk_chars)
    repeated_from = end - overlap
    if border == _LINE_END:
        found = text.find(_LINE_END, repeated_from, end - 1)
        return found + 1 if found >= 0 else _begin_at(text, end, first, chunk_chars)
    found = text.find(" ", repeated_from, end - 1)
    return found + 1 if found >= 0 else repeated_from
