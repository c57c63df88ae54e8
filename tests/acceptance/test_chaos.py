"""The chaos works: its load is accepted, servers come and go, and nothing is lost. More takes ten minutes."""

from pathlib import Path

import pytest
from tests.chaos.chaos import Plan, run_chaos

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_short_chaos_disturbs_servers_and_finds_nothing_wrong(tmp_path: Path) -> None:
    result = run_chaos(Plan(seconds=12, clients=4, seed=1), tmp_path)

    assert result.violations == []
    assert result.counts["turns"] > 0
    assert result.counts["kills"] + result.counts["pauses"] + result.counts["stops"] > 2
