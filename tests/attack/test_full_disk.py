"""A server whose disk is full says that it is not ready, loses nothing, and works again once there is room."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx
import pytest
from tests.support.client_objects import eventually
from tests.support.server_process import ServerProcess
from tests.support.wire_server import connect_plainly

from holdfast.adapters.store import disk_space
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import DiskFull
from holdfast.http.readiness import Readiness
from holdfast.ports.store import Transaction

pytestmark = pytest.mark.slow

T = TypeVar("T")

# More than the server's log lines, less than its database: files cannot grow beyond it.
FULL_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = ServerProcess.start(tmp_path_factory.mktemp("home"))
    yield started
    started.stop()


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with connect_plainly(server.address) as client:
        yield client


@contextmanager
def full_disk(server: ServerProcess) -> Iterator[None]:
    """No file of the server can be written beyond a small size: to SQLite that is a disk without room."""
    before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


def check_ready(http: httpx.Client) -> tuple[int, str]:
    answer = http.get("/v1/ready/")
    return answer.status_code, answer.json()["status"]


def create_agent(http: httpx.Client) -> httpx.Response:
    body = {"model": "holdfast/guide", "include_base_tools": False}
    return http.post("/v1/agents/", json=body)


def test_a_server_with_a_full_disk_is_not_ready_until_there_is_room(
    server: ServerProcess, http: httpx.Client
) -> None:
    agent_id = create_agent(http).json()["id"]
    # The next write goes to the end of the log, which is longer than the limit.
    while (server.home / ".holdfast" / "holdfast.db-wal").stat().st_size <= 2 * FULL_BYTES:
        assert create_agent(http).status_code == 200
    assert check_ready(http) == (200, "ok")
    with full_disk(server):
        full = (503, "disk full")
        assert eventually(lambda: check_ready(http), lambda state: state == full) == full
        assert http.get("/v1/health/").status_code == 200
        assert http.get(f"/v1/agents/{agent_id}").status_code == 200
        for _ in range(3):
            refused = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hi"})
            # Nothing was stored, so it may be sent again.
            assert (refused.status_code, refused.headers.get("x-should-retry")) == (503, None)
        # The others are only counted.
        assert server.log.count("request.failed") == 1
    assert eventually(lambda: check_ready(http), lambda state: state[0] == 200) == (200, "ok")
    assert http.get("/v1/runs/", params={"agent_id": agent_id}).json() == []
    sent = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hi"})
    assert sent.status_code == 200


async def test_a_disk_without_room_is_full_even_if_single_writes_succeed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of the database uses its own room again, so small writes go on for a while."""
    monkeypatch.setattr(disk_space, "MIN_FREE_BYTES", 2**62)
    assert isinstance(await Readiness().find_fault(store), DiskFull)
    monkeypatch.undo()
    assert await Readiness().find_fault(store) is None


class CountingStore:
    """Counts the writes."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.writes = 0

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self.writes += 1
        return await self._store.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.read(work)

    async def close(self) -> None: ...


async def test_many_questions_cost_one_write(store: SqliteStore) -> None:
    counting = CountingStore(store)
    readiness = Readiness()
    for _ in range(50):
        assert await readiness.find_fault(counting) is None
    assert counting.writes == 1


async def test_the_question_changes_nothing(store: SqliteStore) -> None:
    def read_revision(tx: Transaction) -> str:
        connection = tx._connection  # type: ignore[attr-defined]  # no port shows it
        return str(connection.exec_driver_sql("SELECT * FROM alembic_version").scalar())

    before = await store.read(read_revision)
    await store.write(lambda tx: tx.write_probe())
    assert await store.read(read_revision) == before
