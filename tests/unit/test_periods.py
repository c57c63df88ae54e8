"""Dates that callers name become moments."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from holdfast.core.periods import first_moment, last_moment

ROME = ZoneInfo("Europe/Rome")
# There summer time ends at midnight: the clock shows the last hour of the day twice.
BEIRUT = ZoneInfo("Asia/Beirut")


def test_no_date_is_no_moment() -> None:
    assert first_moment(None, ROME) is None
    assert last_moment(None, ROME) is None


def test_a_date_without_an_offset_is_of_the_timezone() -> None:
    noon = datetime(2024, 7, 1, 12)  # noqa: DTZ001 - as callers write it

    assert first_moment(noon, ROME) == datetime(2024, 7, 1, 10, tzinfo=UTC)
    assert last_moment(noon, ROME) == datetime(2024, 7, 1, 10, tzinfo=UTC)


def test_a_date_with_an_offset_is_a_moment() -> None:
    midnight = datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=5)))

    assert first_moment(midnight, ROME) == midnight
    assert last_moment(midnight, ROME) == midnight


def test_a_day_ends_with_its_last_moment() -> None:
    day = datetime(2024, 7, 1)  # noqa: DTZ001 - as callers write it
    last = last_moment(day, ROME)

    assert last is not None
    assert last + timedelta(microseconds=1) == datetime(2024, 7, 1, 22, tzinfo=UTC)


def test_a_day_whose_last_hour_comes_twice_ends_with_the_second() -> None:
    day = datetime(2024, 10, 26)  # noqa: DTZ001 - as callers write it
    first, last = first_moment(day, BEIRUT), last_moment(day, BEIRUT)

    assert first is not None
    assert last is not None
    length = last.astimezone(UTC) - first.astimezone(UTC)
    assert length + timedelta(microseconds=1) == timedelta(hours=25)


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_ends_of_the_calendar_are_dates_too(text: str, zone: str) -> None:
    day = datetime.fromisoformat(text)
    first, last = first_moment(day, ZoneInfo(zone)), last_moment(day, ZoneInfo(zone))

    assert first is not None
    assert last is not None
    assert first < last
