"""Text search over tools (wire-v1 §2.5)."""

from datetime import UTC, datetime

import pytest

from holdfast.core.tool_search import search
from holdfast.core.tools import Tool

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tool(name: str, description: str = "", *tags: str) -> Tool:
    return Tool(
        id=f"tool-{name}",
        organization_id="org",
        name=name,
        description=description,
        json_schema={},
        created_at=NOW,
        updated_at=NOW,
        tags=tags,
    )


TOOLS = [
    tool("get_weather", "Tell the weather of a city."),
    tool("bookFlight", "Book a flight to a city.", "travel"),
    tool("send_mail", "Send a mail. The weather does not matter, nor does the city, for a mail."),
]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("weather", ["get_weather", "send_mail"]),
        ("WEATHER get", ["get_weather", "send_mail"]),
        ("flight", ["bookFlight"]),
        ("travel", ["bookFlight"]),
        ("book", ["bookFlight"]),
        ("nothing", []),
        ("", ["get_weather", "bookFlight", "send_mail"]),
        ("?!", ["get_weather", "bookFlight", "send_mail"]),
    ],
)
def test_the_best_match_comes_first(words: str, names: list[str]) -> None:
    assert [item.tool.name for item in search(TOOLS, words, 10)] == names


def test_ranks_and_scores_fall_together_and_the_limit_holds() -> None:
    found = search(TOOLS, "city mail", 2)

    assert [item.rank for item in found] == [1, 2]
    assert found[0].score > found[1].score > 0
    assert found[0].text.startswith("send_mail\n")


def test_no_tools_are_no_fault() -> None:
    assert search([], "weather", 5) == []
