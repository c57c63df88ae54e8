"""The report: a table while measuring, JSON and Markdown at the end."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]  # it brings no types

from bench.measurements import Measurement
from holdfast import __version__

_HEADINGS = ("", "measured", "floor", "times floor", "budget", "")
_MARKS = {True: "✓", False: "✗", None: ""}


def cells(measurement: Measurement) -> tuple[str, ...]:
    sign = "≥" if measurement.more_is_better else "≤"
    times = measurement.times_floor
    return (
        measurement.what,
        _number(measurement.value, measurement.unit),
        "" if measurement.floor is None else _number(measurement.floor, measurement.unit),
        "" if times is None else f"{times:.1f}",
        ""
        if measurement.budget is None
        else f"{sign} {measurement.budget:g} {measurement.unit}".rstrip(),
        _MARKS[measurement.holds],
    )


def table(measurements: Sequence[Measurement]) -> str:
    rows = [_HEADINGS, *(cells(measurement) for measurement in measurements)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_align(row, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(measurements: Sequence[Measurement]) -> str:
    rows = [
        _HEADINGS,
        ("---", *["---:"] * 4, "---"),
        *(cells(measurement) for measurement in measurements),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def machine_facts(database: str) -> dict[str, str]:
    """The machine and versions, without the host's name."""
    return {
        "holdfast": __version__,
        "database": database,
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": f"{os.getloadavg()[0]:.1f}",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe_machine(where: Mapping[str, str]) -> str:
    return (
        f"Holdfast {where['holdfast']} on {where['database']}; {where['cores']} cores, "
        f"{where['memory']}, {where['system']}, Python {where['python']}; load before the run "
        f"{where['load_before']}; {where['measured_at'][:10]}."
    )


def save(path: Path, where: Mapping[str, str], measurements: Sequence[Measurement]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        msgspec.to_builtins(measurement)
        | {"times_floor": measurement.times_floor, "holds": measurement.holds}
        for measurement in measurements
    ]
    text = msgspec.json.format(msgspec.json.encode({"machine": where, "figures": rows}), indent=2)
    path.write_bytes(text + b"\n")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _number(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or (not unit and value == int(value)) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def _align(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    numbers = (cell.strip().rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
    return "  ".join([first, *numbers]).rstrip()
