"""``python -m bench.compare OTHER``: this checkout beside another one, in interleaved pairs.

Machines swing by a factor of two within minutes. So both checkouts are measured in turn, each pair yields one ratio,
and the median of the ratios is shown with its interval. Each checkout needs its own ``.venv`` (``make test`` makes it).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench import report
from bench.processes import ROOT

PAIRS = 10
# A row is reported as worse when its whole interval lies beyond this ratio.
TOLERANCE = 1.05
CONFIDENCE = 0.95
BENCH_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How this checkout compares in one row; above 1 is worse, for rates too."""

    what: str
    median: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        return self.low > TOLERANCE


def compare(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> list[Comparison]:
    """One comparison for each row that every pair measured; each pair is (other, this)."""
    rows = [name for name in pairs[0][1] if all(name in run for pair in pairs for run in pair)]
    return [
        _comparison(name, sorted(this[name] / other[name] for other, this in pairs))
        for name in rows
        if all(other[name] and this[name] for other, this in pairs)
    ]


def _comparison(what: str, ratios: Sequence[float]) -> Comparison:
    left_out = _count_left_out(len(ratios))
    low, high = ratios[left_out], ratios[-1 - left_out]
    return Comparison(what, statistics.median(ratios), low, high)


def _count_left_out(count: int) -> int:
    """How many of the smallest ratios, and of the largest, the interval leaves out and still holds the true median with
    at least 95 %: each ratio is on either side of it by chance. With few pairs none, and then it holds with less."""
    below = [math.comb(count, number) / 2**count for number in range(count // 2)]
    unlikely = [chance for chance in accumulate(below) if chance <= (1 - CONFIDENCE) / 2]
    return max(0, len(unlikely) - 1)


def _measure(checkout: Path, options: Sequence[str]) -> dict[str, float]:
    """Run the bench of a checkout; the value of each row, so that smaller is better."""
    with tempfile.TemporaryDirectory(prefix="holdfast-compare-") as folder:
        results = Path(folder) / "results.json"
        command = [checkout / ".venv" / "bin" / "python", "-m", "bench", "--json", results]
        subprocess.run(
            [*map(str, command), *options],
            cwd=checkout,
            env={key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=BENCH_SECONDS,
        )
        return values_by_name(json.loads(results.read_bytes())["figures"])


def values_by_name(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The value of each row, so that smaller is better. An indented row belongs to the one above it, and its name may
    occur again below another."""
    values = {}
    heading = ""
    for row in rows:
        name: str = row["what"]
        if name.startswith(" "):
            name = f"{heading}: {name.strip()}"
        else:
            heading = name
        is_rate = row["more_is_better"] and row["value"]
        values[name] = 1 / row["value"] if is_rate else row["value"]
    return values


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description="Compare this checkout with another. Further options go to both benches.",
    )
    parser.add_argument("other", type=Path, help="the checkout from before the change")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"how many (default {PAIRS})")
    return parser.parse_known_args()


def main() -> None:
    options, passed_on = _options()
    pairs = []
    for number in range(1, options.pairs + 1):
        # Whoever goes first finds a cooler machine, so the order alternates.
        checkouts = [options.other.resolve(), ROOT]
        order = checkouts if number % 2 else checkouts[::-1]
        measured = {checkout: _measure(checkout, passed_on) for checkout in order}
        pairs.append((measured[checkouts[0]], measured[checkouts[1]]))
        report.progress(f"pair {number} of {options.pairs} measured")
    print(f"this checkout : {options.other}, {options.pairs} pairs; below 1 is better\n")
    for row in compare(pairs):
        mark = "  worse" if row.is_worse else ""
        print(f"{row.median:6.2f}  [{row.low:.2f}, {row.high:.2f}]  {row.what}{mark}")


if __name__ == "__main__":
    main()
