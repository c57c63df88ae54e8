"""Whether a series of measurements grows: pure arithmetic.

The load is the same all the time, so every figure should vary around a level. The first quarter does not count: caches
fill, pools open, and the allocator takes what it will keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median
from typing import Final

# Fewer samples say nothing.
MIN_SAMPLES: Final = 8
# Above this, neighbours are averaged: all pairs of more points take long.
_MAX_SLOPE_POINTS: Final = 100


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a figure may rise between the end of the first quarter and the end: a share of its level, or an
    amount, whichever is more."""

    share: float = 0.0
    amount: float = 0.0

    def allowed_rise(self, level: float) -> float:
        return max(self.share * level, self.amount)


@dataclass(frozen=True, slots=True)
class Growth:
    """The level of a figure at the start and in each quarter, and how it changes."""

    start: float
    quarters: tuple[float, float, float, float]
    per_hour: float
    rise: float
    allowed_rise: float

    @property
    def is_growing(self) -> bool:
        """Both by the slope and by the level of the last quarter: either alone is misled by noise."""
        _, second, _, fourth = self.quarters
        return self.rise > self.allowed_rise and fourth - second > self.allowed_rise / 2


def measure_growth(
    at_seconds: Sequence[float], values: Sequence[float], tolerance: Tolerance
) -> Growth | None:
    """The growth of a figure that should be level; None if there are too few samples."""
    if len(values) < MIN_SAMPLES:
        return None
    first = len(values) // 4
    slope = _robust_slope(at_seconds[first:], values[first:])
    rise = slope * (at_seconds[-1] - at_seconds[first])
    level = median(values[first:])
    return Growth(
        start=values[0],
        quarters=_quarter_levels(values),
        per_hour=slope * 3600,
        rise=rise,
        allowed_rise=tolerance.allowed_rise(level),
    )


def measure_growth_per_turn(
    at_seconds: Sequence[float],
    turns: Sequence[float],
    totals: Sequence[float],
    tolerance: Tolerance,
) -> Growth | None:
    """The growth of a total's increase per turn: what is kept for each turn should stay the same."""
    if len(totals) < MIN_SAMPLES:
        return None
    marks = [round(quarter * (len(totals) - 1) / 4) for quarter in range(5)]
    rates = [
        (totals[end] - totals[begin]) / max(1.0, turns[end] - turns[begin])
        for begin, end in pairwise(marks)
    ]
    rise = rates[3] - rates[1]
    hours = (at_seconds[-1] - at_seconds[0]) / 2 / 3600
    return Growth(
        start=rates[0],
        quarters=(rates[0], rates[1], rates[2], rates[3]),
        per_hour=rise / hours if hours else 0.0,
        rise=rise,
        allowed_rise=tolerance.allowed_rise(rates[1]),
    )


def _quarter_levels(values: Sequence[float]) -> tuple[float, float, float, float]:
    marks = [round(quarter * len(values) / 4) for quarter in range(5)]
    first, second, third, fourth = (median(values[begin:end]) for begin, end in pairwise(marks))
    return first, second, third, fourth


def _robust_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The median of the slopes of all pairs (Theil and Sen): a few outliers do not change it."""
    step = max(1, -(-len(xs) // _MAX_SLOPE_POINTS))
    points = [
        (fmean(xs[begin : begin + step]), fmean(ys[begin : begin + step]))
        for begin in range(0, len(xs), step)
    ]
    slopes = [
        (right[1] - left[1]) / (right[0] - left[0])
        for left, right in combinations(points, 2)
        if right[0] > left[0]
    ]
    return median(slopes) if slopes else 0.0
