"""The other half of the scenarios: see ``test_even_seeds``."""

import pytest
from tests.simulation.seeds import CHUNK, ODD_SEEDS, assert_nothing_found


@pytest.mark.slow
@pytest.mark.parametrize("first", ODD_SEEDS)
def test_no_scenario_breaks_a_promise(first: int) -> None:
    assert_nothing_found(range(first, first + 2 * CHUNK, 2))
