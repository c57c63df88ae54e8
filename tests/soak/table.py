"""The table of a soak and its verdict."""

from collections.abc import Sequence
from typing import Final

from tests.soak.growth import Growth, measure_growth, measure_growth_per_turn
from tests.soak.samples import FIGURES, Figure, Sample

_HEAD: Final = ("figure", "start", "1/4", "2/4", "3/4", "end", "per hour", "allowed", "verdict")
_IDLE_HEAD: Final = ("idle server", "before", "after", "allowed", "verdict")


def render_table(samples: Sequence[Sample]) -> tuple[list[str], list[str]]:
    """The lines of the table, and the names of what grows."""
    rows: list[tuple[str, ...]] = [_HEAD]
    growing = []
    for key, figure in FIGURES.items():
        growth = _measure(key, figure, samples)
        if growth is None:
            rows.append((_label(figure), *[""] * 7, "too few samples"))
            continue
        verdict = "GROWING" if growth.is_growing else "flat"
        growing += [figure.name] if growth.is_growing else []
        levels = (growth.start, *growth.quarters, growth.per_hour, growth.allowed_rise)
        rows.append((_label(figure), *map(_number, levels), verdict))
    return _align(rows), growing


def render_idle_table(before: Sample, after: Sample) -> tuple[list[str], list[str]]:
    """What a server without load has after the soak and did not have before."""
    rows: list[tuple[str, ...]] = [_IDLE_HEAD]
    growing = []
    for key, figure in FIGURES.items():
        if figure.idle_rise is None:
            continue
        earlier, later = before.values[key], after.values[key]
        is_growing = later - earlier > figure.idle_rise
        growing += [f"{figure.name} of an idle server"] if is_growing else []
        allowed = f"+{figure.idle_rise:g}"
        verdict = "GROWING" if is_growing else "flat"
        rows.append((_label(figure), _number(earlier), _number(later), allowed, verdict))
    return _align(rows), growing


def _measure(key: str, figure: Figure, samples: Sequence[Sample]) -> Growth | None:
    seconds = [sample.at_seconds for sample in samples]
    values = [sample.values[key] for sample in samples]
    if figure.per_turn:
        turns = [sample.turns for sample in samples]
        return measure_growth_per_turn(seconds, turns, values, figure.tolerance)
    return measure_growth(seconds, values, figure.tolerance)


def _label(figure: Figure) -> str:
    return f"{figure.name}, {figure.unit}" if figure.unit else figure.name


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    ]
