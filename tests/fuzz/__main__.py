"""Fuzzing the API by hand: ``make fuzz MINUTES=30``; ``make fuzz SEED=123`` again."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.support.api_fuzzing import create_targets, fuzz, start_fuzzed_server
from tests.support.server_process import ServerProcess

# The coverage phase tries every boundary of every field once and takes as long as it takes.
_COVERAGE_LIMIT_SECONDS = 1800.0
_GRACE_SECONDS = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10, help="how long to try, besides the coverage phase"
    )
    parser.add_argument("--seed", type=int, help="the seed of a run to repeat")
    chosen = parser.parse_args()
    seed = random.randrange(2**32) if chosen.seed is None else chosen.seed
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        server = start_fuzzed_server(Path(folder))
        try:
            return _run_phases(server, Path(folder), seed, chosen.minutes * 60)
        finally:
            server.stop()


def _run_phases(server: ServerProcess, folder: Path, seed: int, seconds: float) -> int:
    each = max(1, round(seconds / 2))
    phases = {
        "every kind of value": (["--phases", "coverage"], _COVERAGE_LIMIT_SECONDS, {}),
        "things that exist": (
            [*_repeat("fuzzing", each), "--exclude-method", "DELETE"],
            each + _GRACE_SECONDS,
            create_targets(server),
        ),
        "one after another": (_repeat("stateful", each), each + _GRACE_SECONDS, {}),
    }
    failed = 0
    for name, (options, limit, values) in phases.items():
        sys.stdout.write(f"\n{name}: seed {seed}\n")
        again = ("--seed", str(seed), "--continue-on-failure")
        ran = fuzz(server, folder, *again, *options, limit_seconds=limit, path_values=values)
        sys.stdout.write(ran.stdout + ran.stderr)
        failed += ran.returncode != 0
    if "Traceback" in server.log:
        sys.stdout.write(f"\nThe server logged a traceback:\n{server.log}\n")
        failed += 1
    sys.stdout.write(f"\n{failed} of {len(phases)} phases found something.\n")
    return 1 if failed else 0


def _repeat(phase: str, seconds: int) -> list[str]:
    return ["--phases", phase, "--max-time", str(seconds)]


if __name__ == "__main__":
    sys.exit(main())
