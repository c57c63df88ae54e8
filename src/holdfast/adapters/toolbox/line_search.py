"""Searches the lines of a text for a regular expression, part by part. RE2 takes linear time for every expression, and lets
other threads run meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import re2

from holdfast.core.file_tools import MAX_PATTERN_CHARS
from holdfast.errors import ToolError

# A compiled expression; the package has no types.
Pattern: TypeAlias = Any

# The size of the compiled expression, which the time per character grows with. An ordinary one has less than a hundred.
MAX_PROGRAM_SIZE: Final = 20_000
# Of a longer line only the beginning is searched.
MAX_SEARCHED_LINE_CHARS: Final = 500_000
# The time limit is looked at after so many bytes.
_SLICE_BYTES: Final = 65_536
# For these the beginning or end of the text is meant, which is the line here.
_TEXT_ANCHORS: Final = ("\\A", "\\z")
# Whoever uses one of these in a file pattern means a regular expression.
_EXPRESSION_CHARS: Final = frozenset("^$()[]{}\\+")


def compile_pattern(pattern: str, what: str = "regex") -> Pattern:
    """Compile an expression. It ignores case, and matches within a line only."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"Pattern too complex: {len(pattern)} chars > {MAX_PATTERN_CHARS} limit")
    options = re2.Options()
    options.case_sensitive = False
    options.never_nl = True
    # Else RE2 writes to stderr.
    options.log_errors = False
    try:
        compiled = re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        raise ToolError(f"Invalid {what} pattern: {_describe(error)}") from None
    except UnicodeEncodeError:
        raise ToolError(f"Invalid {what} pattern: it contains half a character") from None
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise ToolError(
            f"Invalid {what} pattern: it is too large when its repetitions are written out"
        )
    return compiled


def _describe(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def compile_name_pattern(include: str) -> Pattern:
    """Compile the pattern that names of files must match: a glob such as ``*.py``, or an expression."""
    is_glob = "*" in include and not _EXPRESSION_CHARS & set(include)
    if not is_glob:
        return compile_pattern(include, "include")
    wildcards = {"*": ".*", "?": "."}
    return compile_pattern(
        "".join(wildcards.get(char) or re2.escape(char) for char in include) + "$", "include"
    )


class LineSearch:
    """The search of one text, whose parts are added in order. ``is_over``: the search must stop."""

    def __init__(self, pattern: Pattern, is_over: Callable[[], bool]) -> None:
        self._pattern = pattern
        self._is_over = is_over
        self._has_text_anchor = any(anchor in pattern.pattern for anchor in _TEXT_ANCHORS)
        # The number of the next line, and its beginning if the last part ended within it.
        self._line = 1
        self._beginning = ""

    def add(self, text: str) -> Iterator[int]:
        """Search the next part; return the numbers of the lines that match."""
        if len(self._beginning) == MAX_SEARCHED_LINE_CHARS:
            # What is left of the line is not searched.
            _, line_end, text = text.partition("\n")
            text = line_end + text
        complete, line_end, rest = (self._beginning + text).rpartition("\n")
        self._beginning = rest[:MAX_SEARCHED_LINE_CHARS]
        return self._search(complete + line_end)

    def finish(self) -> Iterator[int]:
        """Search the last line, if it has no line end."""
        return self._search(self._beginning)

    def _search(self, text: str) -> Iterator[int]:
        data = text.encode(errors="replace")
        start = 0
        while start < len(data) and not self._is_over():
            end = data.rfind(b"\n", start, start + _SLICE_BYTES) + 1
            # Without a line end in the slice, the slice is one line.
            end = end or data.find(b"\n", start) + 1 or len(data)
            piece = data[start:end]
            offsets = self._match_lines(piece) if self._has_text_anchor else self._match(piece)
            yield from (self._line + offset for offset in offsets)
            self._line += piece.count(b"\n")
            start = end

    def _match(self, piece: bytes) -> Iterator[int]:
        """The lines of the piece that match, counted from 0. The whole piece is searched at once, which is a hundred times
        faster than line by line."""
        offset = start = 0
        while start < len(piece):
            match = self._pattern.search(piece, start)
            if match is None or (match.start() == len(piece) and piece.endswith(b"\n")):
                return
            offset += piece.count(b"\n", start, match.start())
            yield offset
            start = piece.find(b"\n", match.start()) + 1 or len(piece)
            offset += 1

    def _match_lines(self, piece: bytes) -> Iterator[int]:
        lines = piece.removesuffix(b"\n").split(b"\n")
        return (offset for offset, line in enumerate(lines) if self._pattern.search(line))
