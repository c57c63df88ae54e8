"""Ties the conformance lines of docs/wire-v1.md §8, docs/memory-v1.md §8 and docs/tools-v1.md §10 to the tests, both ways.

A line is either cited by a test (`@pytest.mark.wire(118, 119)`, `@pytest.mark.memory(1)`) or
listed as pending in requirements.toml. The test files are parsed, never imported.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast.core.tool_source.parsing import parse

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.toml")


class Wire:
    """The lines of docs/wire-v1.md."""

    marker = "wire"
    capabilities: ClassVar = {
        "house",
        "streaming",
        "cancel",
        "approvals",
        "runs",
        "tools-and-models",
    }

    @staticmethod
    def lines() -> list[int]:
        page = (ROOT / "docs" / "wire-v1.md").read_text(encoding="utf-8")
        section = page[page.index("\n## 8. ") : page.index("\n## 9. ")]
        return [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]

    @staticmethod
    def pending() -> dict[str, list[int]]:
        groups: dict[str, list[int]] = _requirements()["pending"]
        return groups


class Memory:
    """The lines of docs/memory-v1.md."""

    marker = "memory"
    capabilities: ClassVar = {"tools", "vectors", "files", "open-files"}

    @staticmethod
    def lines() -> list[int]:
        page = (ROOT / "docs" / "memory-v1.md").read_text(encoding="utf-8")
        return [int(number) for number in re.findall(r"^- M(\d+)\. ", page, re.MULTILINE)]

    @staticmethod
    def pending() -> dict[str, list[int]]:
        groups: dict[str, list[int]] = _requirements()["memory"]["pending"]
        return groups


class Tools:
    """The lines of docs/tools-v1.md."""

    marker = "tools"
    capabilities: ClassVar = {
        "groups",
        "agent-types",
        "chat-completions",
        "other-families",
    }

    @staticmethod
    def lines() -> list[int]:
        page = (ROOT / "docs" / "tools-v1.md").read_text(encoding="utf-8")
        return [int(number) for number in re.findall(r"^- P(\d+)\. ", page, re.MULTILINE)]

    @staticmethod
    def pending() -> dict[str, list[int]]:
        groups: dict[str, list[int]] = _requirements()["tools"]["pending"]
        return groups


every_page = pytest.mark.parametrize("page", [Wire, Memory, Tools], ids=["wire", "memory", "tools"])
Page = type[Wire] | type[Memory] | type[Tools]


def _requirements() -> dict[str, Any]:
    with REQUIREMENTS.open("rb") as file:
        return tomllib.load(file)


def pending_numbers(page: Page) -> list[int]:
    return [number for numbers in page.pending().values() for number in numbers]


def find_citations(source: str, marker: str) -> Iterator[int]:
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{marker}":
            for argument in node.args:
                # A literal, so that a search for the number finds the test.
                number = ast.literal_eval(argument)
                assert isinstance(number, int), ast.unparse(node)
                yield number


@cache
def cited_requirements(marker: str) -> dict[int, set[str]]:
    places: dict[int, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        source = file.read_text(encoding="utf-8")
        if f"pytest.mark.{marker}(" not in source:
            continue
        for number in find_citations(source, marker):
            places.setdefault(number, set()).add(str(file.relative_to(ROOT)))
    return places


@every_page
def test_the_conformance_lines_are_numbered_without_gaps(page: Page) -> None:
    lines = page.lines()

    assert lines == list(range(1, len(lines) + 1))


def test_the_page_of_memory_has_all_its_lines() -> None:
    assert len(Memory.lines()) == 70


def test_the_page_of_tools_has_all_its_lines() -> None:
    assert len(Tools.lines()) == 66


@every_page
def test_every_conformance_line_is_shown_by_a_test_or_pending(page: Page) -> None:
    shown = cited_requirements(page.marker).keys() | set(pending_numbers(page))

    assert set(page.lines()) - shown == set()


@every_page
def test_only_lines_that_exist_are_cited_or_pending(page: Page) -> None:
    named = cited_requirements(page.marker).keys() | set(pending_numbers(page))

    assert named - set(page.lines()) == set()


@every_page
def test_a_line_that_a_test_shows_is_no_longer_pending(page: Page) -> None:
    waiting = set(pending_numbers(page))

    assert {
        number: places
        for number, places in cited_requirements(page.marker).items()
        if number in waiting
    } == {}


@every_page
def test_a_pending_line_waits_for_exactly_one_known_capability(page: Page) -> None:
    assert page.pending().keys() <= page.capabilities
    assert [n for n, times in Counter(pending_numbers(page)).items() if times > 1] == []


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

    assert sorted(find_citations(source, "wire")) == [1, 2, 3, 4]


def test_a_citation_that_is_not_a_plain_number_is_refused() -> None:
    with pytest.raises(ValueError, match="malformed"):
        list(find_citations("pytest.mark.wire(*range(3))", "wire"))
