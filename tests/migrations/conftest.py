"""A simulated next version, for the tests of upgrades."""

from functools import partial
from pathlib import Path

import pytest
from tests.support.next_version import NextRevision, release_next_version


@pytest.fixture
def next_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NextRevision:
    """Simulates the next version of Holdfast, with one more revision that has this body."""
    return partial(release_next_version, tmp_path, monkeypatch)
