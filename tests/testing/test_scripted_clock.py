"""The fake clock."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.ports.clock import Clock
from holdfast.testing import FakeClock


def test_both_times_move_by_what_the_test_says_and_by_nothing_else() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 5, 1, tzinfo=UTC), 0.0)
    clock.advance(1.5)
    assert clock.now() == datetime(2026, 5, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 1.5


def test_the_time_is_in_utc() -> None:
    clock = FakeClock(datetime(2026, 5, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now().isoformat() == "2026-05-01T00:00:00+00:00"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2026, 5, 1))  # noqa: DTZ001 - the mistake under test


def test_time_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        FakeClock().advance(-1)


async def test_a_sleeper_wakes_when_the_clock_has_moved_far_enough() -> None:
    clock = FakeClock()
    short, long = asyncio.create_task(clock.sleep(1)), asyncio.create_task(clock.sleep(2))
    assert [await clock.wait_for_sleep(1), await clock.wait_for_sleep(2)] == [1, 2]
    clock.advance(1)
    await asyncio.wait_for(short, 10)
    assert not long.done()
    clock.advance(1)
    await asyncio.wait_for(long, 10)
    assert clock.sleeps == [1, 2]


async def test_a_sleeper_that_is_cancelled_is_forgotten() -> None:
    clock = FakeClock()
    sleeping = asyncio.create_task(clock.sleep(5))
    await clock.wait_for_sleep()
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    assert sleeping.cancelled()
    clock.advance(5)


async def test_waiting_for_a_sleep_that_does_not_come_ends() -> None:
    with pytest.raises(TimeoutError, match="sleep 1"):
        await FakeClock().wait_for_sleep(timeout=0.01)


def test_the_fake_clock_implements_the_clock_port() -> None:
    clock: Clock = FakeClock()
    assert clock.monotonic_ns() == 0
