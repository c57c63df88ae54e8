"""Servers for one module at a time."""

from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster, run_cluster
from tests.support.postgres_server import PostgresServer, run_postgres

from holdfast.testing import ScriptedProvider


@pytest.fixture(scope="module")
def running_cluster(
    postgres_server: PostgresServer,
    running_provider: ScriptedProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with run_cluster(folder, postgres_server.create_empty(), running_provider) as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: Cluster, provider: ScriptedProvider) -> Iterator[Cluster]:
    """Servers on one database. After each test all that live must be well."""
    yield running_cluster
    running_cluster.assert_well()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that a test may stop or fill: nobody else uses it."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def own_cluster(
    own_postgres: PostgresServer,
    provider: ScriptedProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Servers on a database there."""
    folder = tmp_path_factory.mktemp("cluster")
    with run_cluster(folder, own_postgres.create_empty(), provider) as cluster:
        yield cluster
        cluster.assert_well()
