"""When a failed model call is retried."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.retrying import FIRST_WAIT_SECONDS, retry_wait_seconds

ATTEMPTS = st.integers(2, 12)
SEEDS = st.text(max_size=8)


@given(ATTEMPTS, SEEDS)
def test_each_pause_is_twice_as_long_give_or_take_a_half(attempt: int, seed: str) -> None:
    wait = retry_wait_seconds(attempt, requested_seconds=None, remaining_seconds=1e9, seed=seed)
    pause = FIRST_WAIT_SECONDS * 2 ** (attempt - 2)
    assert wait is not None
    assert pause / 2 <= wait <= pause


@given(ATTEMPTS, SEEDS, st.floats(0, 1e6))
def test_a_provider_is_never_asked_before_the_time_it_named(
    attempt: int, seed: str, asked: float
) -> None:
    wait = retry_wait_seconds(attempt, requested_seconds=asked, remaining_seconds=1e9, seed=seed)
    assert wait is not None
    assert asked <= wait <= asked + FIRST_WAIT_SECONDS


@given(ATTEMPTS, SEEDS, st.none() | st.floats(0, 100), st.floats(-10, 100))
def test_nothing_is_waited_for_that_comes_too_late(
    attempt: int, seed: str, asked: float | None, left: float
) -> None:
    wait = retry_wait_seconds(attempt, requested_seconds=asked, remaining_seconds=left, seed=seed)
    unbounded = retry_wait_seconds(
        attempt, requested_seconds=asked, remaining_seconds=1e9, seed=seed
    )
    assert unbounded is not None
    assert wait == (unbounded if unbounded <= left else None)


def test_runs_that_failed_together_do_not_come_back_together() -> None:
    waits = {
        retry_wait_seconds(2, requested_seconds=None, remaining_seconds=60, seed=f"step-{number}")
        for number in range(50)
    }
    assert len(waits) == 50
