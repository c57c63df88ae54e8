"""As many scenarios as a test run has time for; ``make simulate`` runs more."""

import pytest
from tests.simulation.seeds import CHUNK, TESTED_SEEDS, play_all


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, TESTED_SEEDS, CHUNK))
def test_no_scenario_breaks_a_promise(first: int) -> None:
    found = play_all(range(first, first + CHUNK))
    assert not found, "\n\n".join(found[:3])
