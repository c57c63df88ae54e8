"""Ties the conformance lines of docs/wire-v1.md §8 to the tests, both ways.

A line is either cited by a test (`@pytest.mark.wire(118, 119)`) or listed as pending in
requirements.toml. The test files are parsed, never imported.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.tool_source.parsing import parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "wire-v1.md"
REQUIREMENTS = Path(__file__).with_name("requirements.toml")

CAPABILITIES = {"house", "streaming", "cancel", "approvals", "runs", "tools-and-models"}


def conformance_lines() -> list[int]:
    page = PAGE.read_text(encoding="utf-8")
    section = page[page.index("\n## 8. ") : page.index("\n## 9. ")]
    return [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]


def pending() -> dict[str, list[int]]:
    with REQUIREMENTS.open("rb") as file:
        groups: dict[str, list[int]] = tomllib.load(file)["pending"]
    return groups


def pending_numbers() -> list[int]:
    return [number for numbers in pending().values() for number in numbers]


def find_citations(source: str) -> Iterator[int]:
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.wire":
            for argument in node.args:
                # A literal, so that a search for the number finds the test.
                number = ast.literal_eval(argument)
                assert isinstance(number, int), ast.unparse(node)
                yield number


def cited_requirements() -> dict[int, set[str]]:
    places: dict[int, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for number in find_citations(file.read_text(encoding="utf-8")):
            places.setdefault(number, set()).add(str(file.relative_to(ROOT)))
    return places


def test_the_conformance_lines_are_numbered_without_gaps() -> None:
    lines = conformance_lines()

    assert lines == list(range(1, len(lines) + 1))


def test_every_conformance_line_is_shown_by_a_test_or_pending() -> None:
    assert set(conformance_lines()) - cited_requirements().keys() - set(pending_numbers()) == set()


def test_only_lines_that_exist_are_cited_or_pending() -> None:
    assert (cited_requirements().keys() | set(pending_numbers())) - set(
        conformance_lines()
    ) == set()


def test_a_line_that_a_test_shows_is_no_longer_pending() -> None:
    waiting = set(pending_numbers())

    assert {
        number: places for number, places in cited_requirements().items() if number in waiting
    } == {}


def test_a_pending_line_waits_for_exactly_one_known_capability() -> None:
    assert pending().keys() <= CAPABILITIES
    assert [n for n, times in Counter(pending_numbers()).items() if times > 1] == []


def test_citations_are_found_on_functions_classes_and_parameters() -> None:
    source = """
import pytest

@pytest.mark.wire(1, 2)
async def test_a() -> None: ...

@pytest.mark.wire(3)
class TestB:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.wire(4))])
    def test_c(self, x: int) -> None: ...
"""

    assert sorted(find_citations(source)) == [1, 2, 3, 4]


def test_a_citation_that_is_not_a_plain_number_is_refused() -> None:
    with pytest.raises(ValueError, match="malformed"):
        list(find_citations("pytest.mark.wire(*range(3))"))
