"""Running many scenarios on one database, which is emptied between them."""

import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.simulation.disk import Disk
from tests.simulation.files import FileWork
from tests.simulation.many_servers import ManyServers
from tests.simulation.scenario import Scenario, ViolationFound, play

# How many seeds `make simulate` plays, how many of them the tests do with one server and with several, and how many at a
# time.
SEEDS: Final = 2_000
TESTED_SEEDS: Final = 200
TESTED_SEEDS_WITH_PEERS: Final = 2_000
TESTED_SEEDS_WITH_FILES: Final = 100
CHUNK: Final = 50

# In memory where there is such a folder: nothing here outlives the test.
_MEMORY: Final = Path("/dev/shm")


@contextmanager
def disks() -> Iterator[Disk]:
    room = str(_MEMORY) if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="holdfast-simulation-", dir=room) as folder:
        disk = Disk(Path(folder))
        try:
            yield disk
        finally:
            disk.close()


def iter_violations(
    seeds: Iterable[int], kind: type[Scenario] = Scenario
) -> Generator[str, None, None]:
    """The violations that these seeds find, one after the other."""
    with disks() as disk:
        for seed in seeds:
            try:
                play(seed, disk, kind)
            except ViolationFound as error:
                yield str(error)


def play_all(seeds: Iterable[int]) -> list[str]:
    """The violations that these seeds find with one server, each with its trace."""
    return list(iter_violations(seeds))


def play_all_with_peers(seeds: Iterable[int]) -> list[str]:
    """The violations that these seeds find with several servers, each with its trace."""
    return list(iter_violations(seeds, ManyServers))


def play_all_with_files(seeds: Iterable[int]) -> list[str]:
    """The violations that these seeds find with several servers to which files are uploaded, each with its trace."""
    return list(iter_violations(seeds, FileWork))


def play_both(seeds: Iterable[int]) -> list[str]:
    """The violations that these seeds find with one server, with several, and with files."""
    seeds = list(seeds)
    return play_all(seeds) + play_all_with_peers(seeds) + play_all_with_files(seeds)
