"""The fake clock."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.testing import FakeClock


def test_both_times_move_by_what_the_test_says_and_by_nothing_else() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 5, 1, tzinfo=UTC), 0.0)
    clock.advance(1.5)
    assert clock.now() == datetime(2026, 5, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 1.5


def test_the_time_is_told_in_utc() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now().isoformat() == "2026-05-01T00:00:00+00:00"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2026, 5, 1))  # noqa: DTZ001 - the mistake under test


def test_time_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)
