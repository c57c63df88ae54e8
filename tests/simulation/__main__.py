"""Running scenarios by hand: ``make simulate SEED=123`` replays one, ``make simulate SEEDS=10000`` runs many. Each seed is
played with one server and with several."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.seeds import CHUNK, SEEDS, play_both

# So many stories are told; of the others only the last line.
_STORIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one seed to play")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.seed is not None:
        found = play_both([chosen.seed])
    else:
        found = _play_many(range(chosen.first, chosen.first + chosen.seeds), chosen.workers)
    _report(found)
    return 1 if found else 0


def _play_many(seeds: range, workers: int) -> list[str]:
    started = time.monotonic()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    found: list[str] = []
    played = 0
    with ProcessPoolExecutor(workers) as pool:
        for chunk, stories in zip(chunks, pool.map(play_both, chunks), strict=True):
            found += stories
            played += len(chunk)
            seconds = time.monotonic() - started
            sys.stderr.write(f"\r{played} seeds, {len(found)} found, {seconds:.0f} s")
    sys.stderr.write("\n")
    return found


def _report(found: list[str]) -> None:
    for story in found[:_STORIES]:
        sys.stdout.write(f"\n{story}\n")
    for story in found:
        sys.stdout.write(f"\n{story.split(';')[0]}: {story.splitlines()[-1]}")
    sys.stdout.write("\n" if found else "Nothing found.\n")


if __name__ == "__main__":
    sys.exit(main())
