"""The application as it runs, over a real store and the real bridge; the providers are scripted, over real HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.http_site import LONG_SILENCE_SECONDS, SILENCE_SECONDS, WIRES, Site, open_site

from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.sqlite import SqliteStore


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with _open_site(tmp_path_factory.mktemp("home"), LONG_SILENCE_SECONDS) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running_impatient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The same, but it soon gives up a provider that is silent."""
    async with _open_site(tmp_path_factory.mktemp("home"), SILENCE_SECONDS) as site:
        yield site


@asynccontextmanager
async def _open_site(home: Path, silence_seconds: float) -> AsyncIterator[Site]:
    store = await SqliteStore.open(home / "holdfast.db", cipher=FernetCipher("test"))
    async with open_site(store, silence_seconds=silence_seconds) as site:
        yield site
    await store.close()


@pytest.fixture
def site(running: Site) -> Site:
    """One for all tests of a module, with nothing left from the others."""
    running.provider.reset()
    return running


@pytest.fixture(params=list(WIRES.values()), ids=list(WIRES))
def model(request: pytest.FixtureRequest) -> str:
    """A model on each wire in turn."""
    return str(request.param)
