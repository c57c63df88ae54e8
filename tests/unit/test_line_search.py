"""Searching the lines of a text for a regular expression, part by part."""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.toolbox import line_search
from holdfast.adapters.toolbox.line_search import (
    MAX_SEARCHED_LINE_CHARS,
    LineSearch,
    compile_name_pattern,
    compile_pattern,
)
from holdfast.errors import ToolError


def find_lines(pattern: str, parts: Sequence[str]) -> list[int]:
    search = LineSearch(compile_pattern(pattern), lambda: False)
    found = [number for part in parts for number in search.add(part)]
    return [*found, *search.finish()]


@settings(deadline=None)
@given(
    text=st.text("ab \nÄ日", max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    pattern=st.sampled_from(
        ["a", "^a", "b$", "^$", "a b", "[^a]", r"\s", r"a\s*b", "ä", "日.", "x*", "(a|b)+$", "^ "]
    ),
)
def test_the_lines_found_are_those_that_match_on_their_own(
    text: str, cuts: list[int], pattern: str
) -> None:
    ends = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[start:end] for start, end in pairwise(ends)]
    lines = text.removesuffix("\n").split("\n") if text else []
    expected = [n for n, line in enumerate(lines, 1) if re.search(pattern, line, re.IGNORECASE)]
    assert find_lines(pattern, parts) == expected


@pytest.mark.parametrize(
    ("pattern", "lines"), [(r"\Ab", [2, 3]), (r"b\z", [1, 2]), (r"\Ab\z", [2])]
)
def test_the_ends_of_the_text_are_the_ends_of_the_line(pattern: str, lines: list[int]) -> None:
    assert find_lines(pattern, ["ab\nb\nba\n"]) == lines


def test_a_text_of_many_slices_is_searched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_search, "_SLICE_BYTES", 10)
    text = "".join(f"line {number}\n" for number in range(1, 200))
    assert find_lines("9$", [text]) == [n for n in range(1, 200) if n % 10 == 9]


def test_of_a_line_that_is_too_long_only_the_beginning_is_searched() -> None:
    long = "x" * MAX_SEARCHED_LINE_CHARS
    parts = [long, "needle and more", " needle\nneedle\n", "needle"]
    assert find_lines("needle", parts) == [2, 3]
    assert find_lines("^x", parts) == [1]


@pytest.mark.parametrize(
    "pattern", ["[", "(?=a)", r"(a)\1", "a**", "(?P<x", "a{1001}", "\\", "\udc80", r"(\pL{100}|b)"]
)
def test_an_expression_that_cannot_be_searched_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(ToolError, match=r"^Invalid regex pattern: .+"):
        compile_pattern(pattern)


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(ToolError, match=r"^Pattern too complex: 1001 chars > 1000 limit$"):
        compile_pattern("a" * 1001)


@pytest.mark.parametrize(
    ("include", "name", "matches"),
    [
        ("*.py", "src/a.py", True),
        ("*.py", "src/a.pyc", False),
        ("*.PY", "src/a.py", True),
        ("a?.*", "src/ab.txt", True),
        ("a*z", "src/a.z.txt", False),
        ("src/*", "src/a.py", True),
        (r".*\.md$", "docs/x.md", True),
        ("docs", "docs/x.md", True),
        ("^x", "docs/x.md", False),
    ],
)
def test_names_are_chosen_by_a_glob_or_an_expression(
    include: str, name: str, matches: bool
) -> None:
    assert bool(compile_name_pattern(include).search(name)) is matches


def test_the_search_stops_when_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_search, "_SLICE_BYTES", 4)
    answers = iter([False, True])
    search = LineSearch(compile_pattern("a"), lambda: next(answers))
    assert list(search.add("a\na\na\na\n")) == [1, 2]
