"""docs/wire-v1.md says truthfully which endpoints (§2) and built-in tools (§7.3) the server has.

A row of an endpoint that is missing has ✗ in its first cell. The line under each heading sums its table up.
"""

import re
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from holdfast.adapters.toolbox.builtin import BUILTIN
from holdfast.http.app import HttpSettings, build_app

PAGE = Path(__file__).parents[2] / "docs" / "wire-v1.md"

ALL = "Available."
SOME = "Available, except the rows marked ✗."
NONE = "Not available: all of it answers with an error (404)."

METHOD = r"(?:GET|POST|PATCH|PUT|DELETE)"
ENDPOINT = re.compile(rf"({METHOD}(?:/{METHOD})*) `(/v1/[^`]*)`")
# "`/v1/jobs/…`": whatever begins so.
FAMILY = re.compile(r"`(/v1/[^`]*)…`")
SECTION = re.compile(r"^### (2\.\d+) .*\n(.*)\n((?:.*\n)*?)(?=^##)", re.MULTILINE)


class Row(NamedTuple):
    is_available: bool
    endpoints: list[tuple[str, str]]
    families: list[str]


def sections() -> dict[str, tuple[str, list[Row]]]:
    """By its number: the line under the heading of a section, and the rows of its table."""
    return {
        number: (summary, list(map(parse_row, re.findall(r"^\| .*$", body, re.MULTILINE)[1:])))
        for number, summary, body in SECTION.findall(PAGE.read_text(encoding="utf-8"))
    }


def parse_row(line: str) -> Row:
    tier, rest = line.removeprefix("|").split("|", 1)
    endpoints = [
        (method, without_parameter_names(path))
        for methods, path in ENDPOINT.findall(rest)
        for method in methods.split("/")
    ]
    return Row("✗" not in tier, endpoints, FAMILY.findall(rest))


def without_parameter_names(path: str) -> str:
    """The path without the names of its parameters, which the page and the code may choose differently."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def routes() -> set[tuple[str, str]]:
    paths = build_app(None, HttpSettings()).openapi()["paths"]
    return {
        (method.upper(), without_parameter_names(path))
        for path, methods in paths.items()
        for method in methods
    }


def rows() -> list[Row]:
    return [row for _, rows in sections().values() for row in rows]


def test_every_section_of_endpoints_is_read() -> None:
    assert list(sections()) == [f"2.{number}" for number in range(1, 17)]


@pytest.mark.parametrize("number", sections())
def test_the_line_under_a_heading_sums_its_table_up(number: str) -> None:
    summary, rows = sections()[number]
    available = {row.is_available for row in rows}
    expected = {frozenset({True}): ALL, frozenset({False}): NONE}.get(frozenset(available), SOME)

    assert summary == expected


def test_the_endpoints_that_the_page_calls_available_are_the_routes_of_the_server() -> None:
    assert {item for row in rows() if row.is_available for item in row.endpoints} == routes()


def test_the_server_has_no_route_for_what_the_page_calls_missing() -> None:
    missing = [row for row in rows() if not row.is_available]
    families = tuple(family for row in missing for family in row.families)

    assert {item for row in missing for item in row.endpoints} & routes() == set()
    assert {path for _, path in routes() if path.startswith(families)} == set()


async def test_a_missing_endpoint_answers_with_the_errors_that_the_page_names() -> None:
    """405 and 422 where the path also fits another route: ``POST /v1/agents/import`` fits ``/v1/agents/{agent_id}``."""
    transport = httpx.ASGITransport(build_app(None, HttpSettings()))
    missing = {item for row in rows() if not row.is_available for item in row.endpoints}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        statuses = [
            (await client.request(method, path.replace("{}", "some"))).status_code
            for method, path in sorted(missing)
        ]

    assert {*statuses} <= {404, 405, 422}
    assert statuses.count(404) > len(statuses) / 2


def test_the_page_names_every_built_in_tool_and_marks_those_that_are_missing() -> None:
    _, section = PAGE.read_text(encoding="utf-8").split("### 7.3 Built-in tools", 1)
    section, _ = section.split("\n### ", 1)
    (line,) = re.findall(r"^Not available: (.*)$", section, re.MULTILINE)
    missing = set(re.findall(r"`(\w+)`", line))
    cells = re.findall(r"^\| ([^|(]*)", section, re.MULTILINE)[1:]
    named = {name for cell in cells for name in re.findall(r"\w+", cell)}

    assert missing & {*BUILTIN} == set()
    assert named == {*BUILTIN} | missing
