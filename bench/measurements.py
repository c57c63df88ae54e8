"""The results of a measurement: values, each with its floor and its budget."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    what: str
    unit: str
    value: float
    # The same work by the smallest possible script; None where there is none.
    floor: float | None = None
    # What the project promises; None for a value that only explains another.
    budget: float | None = None
    more_is_better: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the value is within the budget; None without a budget."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.more_is_better else self.value <= self.budget

    @property
    def times_floor(self) -> float | None:
        """The ratio to the floor; for a rate, how many times slower."""
        if not self.floor or not self.value:
            return None
        return self.floor / self.value if self.more_is_better else self.value / self.floor


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile_95(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
