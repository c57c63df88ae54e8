"""Times formatted for people, in the agent's timezone (wire-v1 §1.9)."""

from datetime import UTC, datetime

import pytest

from holdfast.core.system_prompt import human_time, is_timezone

MOMENT = datetime(2026, 1, 29, 20, 44, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timezone", "written"),
    [
        ("UTC", "2026-01-29 08:44:04 PM UTC+0000"),
        ("Europe/Rome", "2026-01-29 09:44:04 PM CET+0100"),
        ("Asia/Tokyo", "2026-01-30 05:44:04 AM JST+0900"),
    ],
)
def test_a_moment_is_written_in_the_agents_timezone(timezone: str, written: str) -> None:
    assert human_time(MOMENT, timezone) == written


@pytest.mark.parametrize("name", ["", "Europe", "Nowhere/Else", "/etc/passwd", "a" * 10_000])
def test_what_is_no_timezone_is_not_taken_for_one(name: str) -> None:
    assert not is_timezone(name)
