"""What the tools open_files, grep_files and semantic_search_files accept and return, as text. ``adapters/toolbox`` runs
them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.agent_files import AttachedFile
from holdfast.errors import ToolError

# Of grep_files.
MAX_PATTERN_CHARS = 1_000
MAX_MATCHES = 1_000
MATCHES_PER_PAGE = 20
DEFAULT_CONTEXT_LINES = 1
MAX_CONTEXT_LINES = 20
# Of a longer line only the beginning is shown.
MAX_LINE_CHARS = 2_000
# Of semantic_search_files.
DEFAULT_PASSAGES = 5
MAX_PASSAGES = 50
MAX_PASSAGE_LINES = 20

_OUT_OF_TIME = "The search took too long and was stopped before all files were read."


class OpenRequest(Struct, frozen=True):
    """A file to open, and which lines of it. Lines count from 1 and both are included; None: the first, the last."""

    name: str
    start: int | None = None
    end: int | None = None


def parse_open_requests(given: object, limit: int) -> Sequence[OpenRequest]:
    """The argument ``file_requests``. The model may send one object in place of a list of one."""
    items = [given] if isinstance(given, Mapping) else given
    if not isinstance(items, list) or not items:
        raise ToolError("No file requests provided")
    if len(items) > limit:
        raise ToolError(
            f"Cannot open {len(items)} files: exceeds configured maximum limit of {limit} files"
        )
    return [_parse_open_request(item) for item in items]


def _parse_open_request(item: object) -> OpenRequest:
    name = item.get("file_name") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(name, str) or not name:
        raise ToolError("Each file request needs a file_name.")
    offset, length = parse_integer(item, "offset"), parse_integer(item, "length")
    if offset is not None and offset < 0:
        raise ToolError(f"Offset for file {name} must be >= 0 (0-indexed), got {offset}")
    if length is not None and length < 1:
        raise ToolError(f"Length for file {name} must be >= 1, got {length}")
    if length is None:
        return OpenRequest(name, offset + 1 if offset else None)
    start = (offset or 0) + 1
    return OpenRequest(name, start, start + length - 1)


def parse_integer(arguments: Mapping[str, Any], name: str) -> int | None:
    """A whole number, which a model may write as text; None if it is not given."""
    value = arguments.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ToolError(f"{name} must be a whole number.")
    try:
        return int(value)
    except ValueError:
        raise ToolError(f"{name} must be a whole number.") from None


def not_attached(name: str, files: Iterable[AttachedFile]) -> ToolError:
    names = sorted(item.name for item in files)
    return ToolError(
        f"{name} not attached - did you get the filename correct? Currently you have the following files attached: {names}"
    )


def check_range(wanted: OpenRequest, found: AttachedFile) -> OpenRequest:
    """The request with an end that the file has. ToolError if it begins behind the end of the file."""
    if wanted.start is not None and wanted.start > max(found.lines, 1):
        raise ToolError(
            f"File {found.name} has only {found.lines} lines, but requested offset {wanted.start} is out of range"
        )
    end = None if wanted.end is None else min(wanted.end, max(found.lines, 1))
    return OpenRequest(found.name, wanted.start, end)


def render_opened(
    opened: Sequence[tuple[OpenRequest, AttachedFile]],
    closed_on_request: Sequence[str],
    evicted: Sequence[str],
) -> str:
    """The return of open_files. Each request comes with the file as it was before."""
    texts = [_render_request(wanted, before) for wanted, before in opened]
    count = f"{len(texts)} files: " if len(texts) > 1 else ""
    lines = [f"* Opened {count}{', '.join(texts)}"]
    if closed_on_request:
        names = ", ".join(closed_on_request)
        lines.append(
            f"Note: Closed {len(closed_on_request)} file(s) due to close_all_others=True: {names}"
        )
    if evicted:
        names = ", ".join(evicted)
        lines.append(
            f"Note: Closed {len(evicted)} least recently used file(s) due to open file limit: {names}"
        )
    return "\n".join(lines)


def _render_request(wanted: OpenRequest, before: AttachedFile) -> str:
    state, text = before.state, wanted.name
    if shown := _render_range(wanted.start, wanted.end):
        text += f" ({shown})"
    if state.is_open and (state.start_line, state.end_line) != (wanted.start, wanted.end):
        text += f" (previously {_render_range(state.start_line, state.end_line) or 'full file'})"
    return text


def _render_range(start: int | None, end: int | None) -> str:
    if start is None and end is None:
        return ""
    return f"lines {start or 1}-{'end' if end is None else end}"


class Hit(Struct, frozen=True):
    """A line that matches; lines count from 1."""

    file_id: str
    file_name: str
    number: int


class GrepResult(Struct, frozen=True, kw_only=True):
    """What grep_files has found. ``is_complete``: there are no more hits than these."""

    hits: Sequence[Hit]
    searched: int
    skipped: int = 0
    is_complete: bool = True
    is_out_of_time: bool = False


class ShownLines(Struct, frozen=True):
    """A hit with the lines around it, which are numbered from ``first`` on."""

    hit: Hit
    first: int
    lines: Sequence[str]


def choose_page(result: GrepResult, offset: int) -> Sequence[Hit]:
    """The hits to show: those in the file with most of them first, from ``offset`` on."""
    counts = Counter(hit.file_name for hit in result.hits)
    ordered = sorted(
        result.hits, key=lambda hit: (-counts[hit.file_name], hit.file_name, hit.number)
    )
    return ordered[offset : offset + MATCHES_PER_PAGE]


def render_grep(
    result: GrepResult, page: Sequence[ShownLines], pattern: str, include: str, offset: int
) -> str:
    """The return of grep_files. ``page``: the hits of ``choose_page`` with their lines."""
    if not result.hits:
        return _render_no_hit(result, pattern, include)
    if not page:
        return "No more matches to show."
    end = offset + len(page)
    lines = [*_render_summary(result, offset, end), ""]
    for shown in page:
        lines += ["", f"=== {shown.hit.file_name}:{shown.hit.number} ===", *_render_lines(shown)]
    return "\n".join([*lines, "", *_render_grep_end(result, pattern, include, end)])


def _render_summary(result: GrepResult, offset: int, end: int) -> Iterable[str]:
    counts = Counter(hit.file_name for hit in result.hits)
    total = f"{len(result.hits)}{'' if result.is_complete else '+'}"
    yield (
        f"Found {total} total matches across {len(counts)} files "
        f"(showing matches {offset + 1}-{end} of {total})"
    )
    if result.skipped:
        yield f"Note: Skipped {result.skipped} files due to size limits"
    if result.is_out_of_time:
        yield f"Note: {_OUT_OF_TIME}"
    yield from ("=" * 80, "", "Files with matches:")
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"  - {name}: {count} matches"


def _render_lines(shown: ShownLines) -> Iterable[str]:
    for number, line in enumerate(shown.lines, shown.first):
        mark = ">" if number == shown.hit.number else " "
        yield f"{mark} {number}: {_cut_line(line)}"


def _cut_line(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}... [line truncated]"


def _render_grep_end(result: GrepResult, pattern: str, include: str, end: int) -> Iterable[str]:
    count, is_last = len(result.hits), end >= len(result.hits)
    if not is_last:
        filtered = f', include="{include}"' if include else ""
        yield f'To see more matches, call: grep_files(pattern="{pattern}"{filtered}, offset={end})'
    if not result.is_complete:
        yield (
            "Showing last page of collected matches. There may be more matches beyond the collection limit."
            if is_last
            else f"Note: Only the first {count} matches were collected. There may be more matches beyond this limit."
        )
    elif is_last:
        yield "No more matches to show."


def _render_no_hit(result: GrepResult, pattern: str, include: str) -> str:
    text = f"No matches found for pattern: '{pattern}'"
    if include:
        text += f" in files matching '{include}'"
    if result.skipped:
        text += f" (searched {result.searched} files, skipped {result.skipped})"
    return f"{text}. {_OUT_OF_TIME}" if result.is_out_of_time else text


def render_passages(query: str, found: Sequence[tuple[str, str]]) -> str:
    """The return of semantic_search_files. ``found``: the name of the file and the text of each passage, best first."""
    if not found:
        return f"No semantic matches found for query: '{query}'"
    by_file: dict[str, list[str]] = {}
    for name, text in found:
        by_file.setdefault(name, []).append(text)
    files = f"{len(by_file)} file{'' if len(by_file) == 1 else 's'}"
    title = f"Found {len(found)} semantic matches in {files} for query: '{query}'"
    lines, number = [title, "=" * len(title)], 0
    for name, texts in by_file.items():
        for text in texts:
            number += 1
            lines += ["", f"=== {name} (passage #{number}) ===", *_render_passage(text)]
    return "\n".join(lines)


def _render_passage(text: str) -> Iterable[str]:
    lines = text.splitlines()
    yield from (f"  {_cut_line(line)}" for line in lines[:MAX_PASSAGE_LINES])
    if len(lines) > MAX_PASSAGE_LINES:
        yield f"  ... [truncated {len(lines) - MAX_PASSAGE_LINES} more lines]"
