"""The texts that the tools for files return."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.file_tools import (
    MATCHES_PER_PAGE,
    MAX_LINE_CHARS,
    GrepResult,
    Hit,
    OpenRequest,
    ShownLines,
    choose_page,
    parse_integer,
    parse_open_requests,
    render_grep,
    render_passages,
)
from holdfast.errors import ToolError


def hits(counts: Sequence[int]) -> list[Hit]:
    return [
        Hit(f"file-{file}", f"f/{file}.txt", line)
        for file, count in enumerate(counts)
        for line in range(1, count + 1)
    ]


def show(page: Sequence[Hit]) -> list[ShownLines]:
    return [ShownLines(hit, hit.number, ["text"]) for hit in page]


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=5))
def test_pages_show_each_match_once_and_the_file_with_most_matches_first(counts: list[int]) -> None:
    result = GrepResult(hits=hits(counts), searched=len(counts))
    seen: list[Hit] = []
    while page := choose_page(result, len(seen)):
        assert len(page) <= MATCHES_PER_PAGE
        text = render_grep(result, show(page), "x", "", len(seen))
        seen += page
        is_last = len(seen) == len(result.hits)
        assert text.endswith("No more matches to show." if is_last else f"offset={len(seen)})")
    assert sorted(seen, key=lambda hit: (hit.file_id, hit.number)) == result.hits
    by_file = [counts[int(hit.file_id.removeprefix("file-"))] for hit in seen]
    assert by_file == sorted(by_file, reverse=True)


def test_a_search_that_was_stopped_or_skipped_files_says_so() -> None:
    late = GrepResult(hits=hits([1]), searched=2, skipped=3, is_complete=False, is_out_of_time=True)
    text = render_grep(late, show(late.hits), "x", "", 0)
    assert text.startswith("Found 1+ total matches across 1 files (showing matches 1-1 of 1+)\n")
    assert "\nNote: Skipped 3 files due to size limits\n" in text
    assert "\nNote: The search took too long and was stopped before all files were read.\n" in text
    none = GrepResult(hits=(), searched=2, skipped=3)
    assert render_grep(none, (), "x", "*.md", 0) == (
        "No matches found for pattern: 'x' in files matching '*.md' (searched 2 files, skipped 3)"
    )
    too_late = GrepResult(hits=(), searched=2, is_complete=False, is_out_of_time=True)
    assert render_grep(too_late, (), "x", "", 0).endswith(
        "'x'. The search took too long and was stopped before all files were read."
    )


def test_a_long_line_is_cut() -> None:
    (hit,) = hits([1])
    shown = ShownLines(hit, 1, ["x" * (MAX_LINE_CHARS + 1)])
    text = render_grep(GrepResult(hits=[hit], searched=1), [shown], "x", "", 0)
    assert f"> 1: {'x' * MAX_LINE_CHARS}... [line truncated]\n" in text


def test_passages_are_grouped_by_file_and_numbered_through() -> None:
    long = "\n".join(f"line {number}" for number in range(1, 28))
    text = render_passages("q", [("f/b", "one"), ("f/a", "two"), ("f/b", long)])
    lines = text.split("\n")
    assert lines[0] == "Found 3 semantic matches in 2 files for query: 'q'"
    assert lines[1] == "=" * len(lines[0])
    headers = [line for line in lines[2:] if line.startswith("===")]
    assert headers == [
        "=== f/b (passage #1) ===",
        "=== f/b (passage #2) ===",
        "=== f/a (passage #3) ===",
    ]
    assert "  line 20\n  ... [truncated 7 more lines]\n" in text


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"file_name": "a"}, OpenRequest("a")),
        ({"file_name": "a", "offset": 0}, OpenRequest("a")),
        ({"file_name": "a", "offset": 5}, OpenRequest("a", 6)),
        ({"file_name": "a", "length": 5}, OpenRequest("a", 1, 5)),
        ({"file_name": "a", "offset": 49, "length": 5}, OpenRequest("a", 50, 54)),
        ({"file_name": "a", "offset": None, "length": ""}, OpenRequest("a")),
    ],
)
def test_an_offset_counts_from_0_and_lines_from_1(
    given: dict[str, object], wanted: OpenRequest
) -> None:
    assert parse_open_requests([given], 1) == [wanted]
    assert parse_open_requests(given, 1) == [wanted]


@settings(deadline=None)
@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers())
)
def test_a_number_is_a_number_or_an_error_for_the_model(value: object) -> None:
    try:
        number = parse_integer({"limit": value}, "limit")
    except ToolError as error:
        number = None
        assert error.args == ("limit must be a whole number.",)  # noqa: PT017 - whether it is raised depends on the value
    assert number is None or type(number) is int
