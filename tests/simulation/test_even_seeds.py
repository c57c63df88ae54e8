"""Half of the scenarios; the other half is in ``test_odd_seeds``, so that two test processes can share them."""

import pytest
from tests.simulation.seeds import CHUNK, EVEN_SEEDS, assert_nothing_found


@pytest.mark.slow
@pytest.mark.parametrize("first", EVEN_SEEDS)
def test_no_scenario_breaks_a_promise(first: int) -> None:
    assert_nothing_found(range(first, first + 2 * CHUNK, 2))
