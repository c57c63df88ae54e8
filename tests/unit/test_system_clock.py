"""The clock of a server follows the one of the database, which all servers share."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.clock import SystemClock

# More than the machine can pause during a test, and far less than the differences below.
PRECISION = timedelta(minutes=5)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong_is_set_right_by_the_database(hours: int) -> None:
    clock = SystemClock()
    clock.compare(datetime.now(UTC) + timedelta(hours=hours))
    assert abs(clock.now() - (datetime.now(UTC) + timedelta(hours=hours))) < PRECISION


def test_a_clock_that_was_set_right_on_the_machine_is_used_again() -> None:
    clock = SystemClock()
    clock.compare(datetime.now(UTC) + timedelta(hours=1))
    clock.compare(datetime.now(UTC))
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)


def test_a_small_difference_does_not_count() -> None:
    clock = SystemClock()
    clock.compare(datetime.now(UTC) + timedelta(milliseconds=500))
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
