"""The soak works: its load is accepted, and it measures something. Whether anything grows takes half an hour to say."""

import asyncio
from pathlib import Path

import pytest
from tests.soak.load import STORIES
from tests.soak.samples import FIGURES
from tests.soak.soak import Plan, run_soak
from tests.soak.table import render_idle_table, render_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_short_soak_plays_stories_and_measures_them(tmp_path: Path) -> None:
    plan = Plan(seconds=12, clients=4, sample_seconds=1, seed=1, idle_seconds=4)

    result = asyncio.run(run_soak(plan, tmp_path))

    assert result.record.surprises == []
    assert set(result.record.played) <= set(STORIES)
    assert result.samples[-1].turns > result.samples[0].turns
    assert result.samples[-1].values["log"] > 0
    assert all(sample.values["memory"] > 10 for sample in result.samples)
    table, _ = render_table(result.samples)
    assert len(table) == 1 + len(FIGURES)
    idle_table, _ = render_idle_table(result.idle_before, result.idle_after)
    assert idle_table[0].startswith("idle server")
