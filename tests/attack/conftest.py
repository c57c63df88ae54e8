"""Hosts that tools attack: one as the user of the tests, and as root also one as an ordinary user. And a server whose store
can fail."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.sandbox_host import LEVELS, ORDINARY_USER, Attacked, SandboxHost
from tests.support.unreliable_site import Site, open_unreliable_site

from holdfast.adapters.store.sqlite import SqliteStore

USERS = ("root", "ordinary user")


@pytest.fixture(scope="module", params=USERS)
def host(request: pytest.FixtureRequest) -> Iterator[SandboxHost]:
    is_root = os.geteuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("The tests do not run as root.")
    user = ORDINARY_USER if is_root and request.param != "root" else None
    # Not in /tmp, of which an isolated tool has its own.
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="holdfast-attack-") as folder,
        SandboxHost(Path(folder), user) as started,
    ):
        if started.problem is not None:
            pytest.skip(started.problem)
        yield started


@pytest.fixture(scope="module", params=LEVELS)
def attacked(request: pytest.FixtureRequest, host: SandboxHost) -> Attacked:
    if request.param == "isolated" and host.isolation_problem is not None:
        pytest.skip(host.isolation_problem)
    return Attacked(host, request.param)


@pytest.fixture
def busy_wait_seconds() -> float:
    """How long a send waits for its turn; a test that waits for this to pass chooses less."""
    return 30.0


@pytest.fixture
async def site(store: SqliteStore, busy_wait_seconds: float) -> AsyncIterator[Site]:
    async with open_unreliable_site(store, busy_wait_seconds) as site:
        yield site
