"""Periods that callers name by dates."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from holdfast.core.periods import first_moment, last_moment

LOS_ANGELES = ZoneInfo("America/Los_Angeles")
LAST = timedelta(microseconds=1)


def test_a_date_with_an_offset_is_that_moment() -> None:
    moment = datetime(2024, 1, 15, tzinfo=timezone(timedelta(hours=2)))

    assert first_moment(moment, LOS_ANGELES) == moment
    assert last_moment(moment, LOS_ANGELES) == moment


def test_no_date_is_no_bound() -> None:
    assert first_moment(None, UTC) is None
    assert last_moment(None, UTC) is None


def test_a_date_without_an_offset_is_in_the_timezone() -> None:
    noon = datetime.fromisoformat("2024-01-15T12")

    assert first_moment(noon, LOS_ANGELES) == datetime(2024, 1, 15, 20, tzinfo=UTC)
    assert last_moment(noon, LOS_ANGELES) == datetime(2024, 1, 15, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("day", "begin", "next_begin"),
    [
        (datetime.fromisoformat("2024-01-15"), (15, 8), (16, 8)),
        # One hour is left out, or comes twice.
        (datetime.fromisoformat("2024-03-10"), (10, 8), (11, 7)),
        (datetime.fromisoformat("2024-11-03"), (3, 7), (4, 8)),
    ],
    ids=["24 hours", "23 hours", "25 hours"],
)
def test_a_day_without_a_time_ends_with_its_last_moment(
    day: datetime, begin: tuple[int, int], next_begin: tuple[int, int]
) -> None:
    def at(day_and_hour: tuple[int, int]) -> datetime:
        return datetime(day.year, day.month, *day_and_hour, tzinfo=UTC)

    assert first_moment(day, LOS_ANGELES) == at(begin)
    assert last_moment(day, LOS_ANGELES) == at(next_begin) - LAST


def test_the_days_at_both_ends_of_the_calendar_are_bounds_in_every_timezone() -> None:
    for zone in (ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Pacific/Niue")):
        for day in (datetime.fromisoformat("0002-01-01"), datetime.fromisoformat("9998-12-31")):
            first, last = first_moment(day, zone), last_moment(day, zone)
            assert first is not None
            assert last is not None
            assert first < last
