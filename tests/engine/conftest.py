"""A rig for each engine test."""

import pytest
from tests.support.rig import Rig

from holdfast.adapters.store.sqlite import SqliteStore


@pytest.fixture
def rig(store: SqliteStore) -> Rig:
    return Rig(store)
