"""The verdict of a soak: growth is told from noise."""

import random

from tests.soak.growth import (
    MIN_SAMPLES,
    Tolerance,
    measure_growth,
    measure_growth_per_turn,
)

SECONDS = [float(second) for second in range(0, 1800, 5)]
FIVE_PERCENT = Tolerance(share=0.05)


def noise(spread: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [chance.uniform(-spread, spread) for _ in SECONDS]


def test_noise_around_a_level_is_flat() -> None:
    for seed in range(20):
        values = [100 + deviation for deviation in noise(10, seed)]
        growth = measure_growth(SECONDS, values, FIVE_PERCENT)
        assert growth is not None
        assert not growth.is_growing


def test_a_leak_below_the_noise_is_found() -> None:
    """Twenty an hour, where single samples differ by as much."""
    for seed in range(20):
        leak = [20 * at / 3600 for at in SECONDS]
        values = [
            100 + more + deviation for more, deviation in zip(leak, noise(10, seed), strict=True)
        ]
        growth = measure_growth(SECONDS, values, FIVE_PERCENT)
        assert growth is not None
        assert growth.is_growing
        assert 8 < growth.per_hour < 32


def test_filling_caches_in_the_first_quarter_are_no_growth() -> None:
    values = [min(at, 400.0) for at in SECONDS]
    growth = measure_growth(SECONDS, values, FIVE_PERCENT)
    assert growth is not None
    assert not growth.is_growing
    assert growth.start == 0
    assert growth.quarters[1:] == (400, 400, 400)


def test_outliers_do_not_count() -> None:
    values = [100.0] * len(SECONDS)
    values[-20:] = [900.0] * 20
    growth = measure_growth(SECONDS, values, FIVE_PERCENT)
    assert growth is not None
    assert not growth.is_growing


def test_a_figure_that_falls_is_not_growing() -> None:
    growth = measure_growth(SECONDS, [5000 - at for at in SECONDS], FIVE_PERCENT)
    assert growth is not None
    assert growth.per_hour == -3600
    assert not growth.is_growing


def test_a_small_figure_is_judged_by_an_amount() -> None:
    values = [0.002 * at for at in SECONDS]
    assert measure_growth(SECONDS, values, Tolerance(amount=5)) is not None
    growth = measure_growth(SECONDS, values, Tolerance(amount=5))
    assert growth is not None
    assert not growth.is_growing
    growth = measure_growth(SECONDS, values, Tolerance(amount=2))
    assert growth is not None
    assert growth.is_growing


def test_rows_that_are_kept_may_add_up_but_not_get_larger() -> None:
    turns = [at * 10 for at in SECONDS]
    steady = [turn * 4000 for turn in turns]
    growth = measure_growth_per_turn(SECONDS, turns, steady, Tolerance(share=0.2))
    assert growth is not None
    assert (growth.quarters, growth.is_growing) == ((4000,) * 4, False)

    quadratic = [turn * turn for turn in turns]
    growth = measure_growth_per_turn(SECONDS, turns, quadratic, Tolerance(share=0.2))
    assert growth is not None
    assert growth.is_growing


def test_too_few_samples_say_nothing() -> None:
    few = SECONDS[: MIN_SAMPLES - 1]
    assert measure_growth(few, few, FIVE_PERCENT) is None
    assert measure_growth_per_turn(few, few, few, FIVE_PERCENT) is None
