"""Running scenarios by hand: ``make simulate SEED=123`` replays one, ``make simulate SEEDS=10000`` runs many. Each seed is
played with one server, with several, and with several to which files are uploaded."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.seeds import (
    CHUNK,
    SEEDS,
    play_all,
    play_all_with_files,
    play_all_with_peers,
    play_both,
)

Play = Callable[[Iterable[int]], list[str]]

_PLAYS: dict[str, Play] = {
    "one": play_all,
    "several": play_all_with_peers,
    "files": play_all_with_files,
    "both": play_both,
}
# So many stories are told; of the others only the last line.
_STORIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one seed to play")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--servers", choices=_PLAYS, default="both", help="how many servers")
    chosen = parser.parse_args()
    play = _PLAYS[chosen.servers]
    if chosen.seed is not None:
        found = play([chosen.seed])
    else:
        seeds = range(chosen.first, chosen.first + chosen.seeds)
        found = _play_many(play, seeds, chosen.workers)
    _report(found)
    return 1 if found else 0


def _play_many(play: Play, seeds: range, workers: int) -> list[str]:
    started = time.monotonic()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    found: list[str] = []
    played = 0
    with ProcessPoolExecutor(workers) as pool:
        for chunk, stories in zip(chunks, pool.map(play, chunks), strict=True):
            found += stories
            played += len(chunk)
            for story in stories:
                sys.stderr.write(f"\n{_summarize(story)}\n")
            seconds = time.monotonic() - started
            sys.stderr.write(f"\r{played} seeds, {len(found)} found, {seconds:.0f} s")
    sys.stderr.write("\n")
    return found


def _report(found: list[str]) -> None:
    for story in found[:_STORIES]:
        sys.stdout.write(f"\n{story}\n")
    for story in found:
        sys.stdout.write(f"\n{_summarize(story)}")
    sys.stdout.write("\n" if found else "Nothing found.\n")


def _summarize(story: str) -> str:
    return f"{story.split(';', maxsplit=1)[0]}: {story.splitlines()[-1]}"


if __name__ == "__main__":
    sys.exit(main())
