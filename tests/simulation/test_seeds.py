"""As many scenarios as a test run has time for; ``make simulate`` runs more."""

import pytest
from tests.simulation.seeds import (
    CHUNK,
    TESTED_SEEDS,
    TESTED_SEEDS_WITH_FILES,
    TESTED_SEEDS_WITH_PEERS,
    play_all,
    play_all_with_files,
    play_all_with_peers,
)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, TESTED_SEEDS, CHUNK))
def test_no_scenario_breaks_a_promise(first: int) -> None:
    found = play_all(range(first, first + CHUNK))
    assert not found, "\n\n".join(found[:3])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, TESTED_SEEDS_WITH_PEERS, CHUNK))
def test_no_scenario_with_several_servers_breaks_a_promise(first: int) -> None:
    found = play_all_with_peers(range(first, first + CHUNK))
    assert not found, "\n\n".join(found[:3])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, TESTED_SEEDS_WITH_FILES, CHUNK // 2))
def test_no_scenario_with_files_breaks_a_promise(first: int) -> None:
    found = play_all_with_files(range(first, first + CHUNK // 2))
    assert not found, "\n\n".join(found[:3])
