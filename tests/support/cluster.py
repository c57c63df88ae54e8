"""Several real servers on one PostgreSQL, each with a home and an address of its own. Whoever starts them closes them."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from letta_client import Letta
from tests.support.client_objects import as_dicts, eventually
from tests.support.database_facts import DatabaseFacts
from tests.support.server_process import ServerProcess
from tests.support.stream_items import read, seq_ids, without_dates
from tests.support.wire_server import connect, connect_plainly, variables

from holdfast.testing import ScriptedProvider

# The shortest lease that is allowed: most weather is over after it.
LEASE_SECONDS = "2"
SECRET_KEY = "one key for all servers"


class ClusterServer:
    """One of the servers, with clients of its own."""

    def __init__(self, process: ServerProcess, options: tuple[str, ...]) -> None:
        self.process = process
        self.options = options
        self.address = process.address
        self.is_alive = True
        self.is_paused = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @cached_property
    def client(self) -> Letta:
        return connect(self.address)

    @cached_property
    def http(self) -> httpx.Client:
        return connect_plainly(self.address)

    def kill(self) -> None:
        """End it as a power cut does."""
        self.is_alive = False
        self.process.kill()

    def stop(self) -> int:
        """Ask it to end, as an operator does. Return its exit code."""
        self.resume()
        self.is_alive = False
        return self.process.stop()

    def pause(self) -> None:
        """Let it do nothing, as a machine that is suspended."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            os.kill(self.pid, signal.SIGCONT)

    def send_async(self, agent_id: str, text: str, **fields: Any) -> str:
        """Send and go: no client waits for the run."""
        path = f"/v1/agents/{agent_id}/messages/async"
        sent = self.http.post(path, json={"input": text} | fields)
        assert sent.status_code == 200, sent.text
        return str(sent.json()["id"])

    def stream(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        """The stream of a run to its end."""
        return read(self.http, f"/v1/runs/{run_id}/stream", starting_after=after)


class Cluster:
    def __init__(self, folder: Path, url: str, provider: ScriptedProvider) -> None:
        self.url = url
        self.provider = provider
        self.facts = DatabaseFacts(url)
        self.servers: list[ClusterServer] = []
        # Settings of all servers that are started from now on.
        self.shared: dict[str, str] = {}
        self._folder = folder
        self._numbers = itertools.count()
        # All servers are on one machine here, and so are the files of their tools.
        self.tool_files = folder / "tool-files"
        self.tool_files.mkdir()
        self.tool_files.chmod(0o777)

    def start(self, *options: str, **given: str) -> ClusterServer:
        """Start one more server. Its settings may differ from those of the others."""
        home = self._folder / f"server-{next(self._numbers)}"
        home.mkdir()
        process = ServerProcess.start(home, *options, **self.variables(**given))
        self.servers.append(ClusterServer(process, options))
        return self.servers[-1]

    def restart(self, server: ClusterServer, **given: str) -> ClusterServer:
        """Start a server that has ended again, in the same home and at the same address."""
        given = {"HOLDFAST_PORT": server.address.rpartition(":")[2]} | given
        process = ServerProcess.start(
            server.process.home, *server.options, **self.variables(**given)
        )
        started = ClusterServer(process, server.options)
        self.servers[self.servers.index(server)] = started
        return started

    def variables(self, **given: str) -> dict[str, str]:
        return {
            **variables(self.provider),
            "HOLDFAST_DATABASE_URL": self.url,
            "HOLDFAST_SECRET_KEY": SECRET_KEY,
            "HOLDFAST_LEASE_SECONDS": LEASE_SECONDS,
            # A run that hangs on purpose need not be waited for.
            "HOLDFAST_DRAIN_SECONDS": "0",
            "HOLDFAST_SANDBOX_WRITABLE": str(self.tool_files),
            **self.shared,
            **given,
        }

    def need(self, count: int) -> list[ClusterServer]:
        """So many servers that are well, of the usual kind."""
        while len(self.alive) < count:
            self.start()
        return self.alive[:count]

    @property
    def alive(self) -> list[ClusterServer]:
        return [server for server in self.servers if server.is_alive]

    def find_owner(self, run_id: str) -> ClusterServer | None:
        """The server that has claimed the run, if it is one that lives."""
        pid = self.facts.find_owner_pid(run_id)
        return next((server for server in self.alive if server.pid == pid), None)

    def wait_for_owner(self, run_id: str, *, other_than: ClusterServer) -> ClusterServer:
        """Wait until another server has claimed the run."""

        def is_another(owner: ClusterServer | None) -> bool:
            return owner is not None and owner is not other_than

        owner = eventually(lambda: self.find_owner(run_id), is_another)
        assert owner is not None
        return owner

    def wait_for_end(self, run_id: str) -> str:
        """Wait until the run has ended, by the word of the database; return its status."""
        ended = ("completed", "failed", "cancelled", "answered", "paused")
        return str(eventually(lambda: self.facts.find_status(run_id), lambda now: now in ended))

    def read_history(
        self, agent_id: str, server: ClusterServer | None = None
    ) -> list[dict[str, Any]]:
        server = server or next(server for server in self.alive if not server.is_paused)
        rows = as_dicts(server.client.agents.messages.list(agent_id, limit=100).items)
        return [row for row in rows if row["message_type"] != "system_message"]

    def assert_well(self) -> None:
        """Everything ends, nothing is wrong, no history was refused, and all servers tell the same of each run."""
        for server in self.alive:
            server.resume()
        self.facts.wait_until_quiet()
        assert self.facts.find_violations() == []
        assert [request.refused for request in self.provider.requests if request.refused] == []
        readers = [server for server in self.alive if "worker" not in server.options]
        for run in self.facts.list_runs():
            told = [without_dates(server.stream(run.id)) for server in readers]
            assert all(one == told[0] for one in told), run.id
            assert count_jumps(told[0]) <= run.fence // 2, run.id

    def close(self) -> None:
        for server in self.servers:
            with suppress(ProcessLookupError):
                server.resume()
            server.process.kill()


def count_jumps(items: list[dict[str, Any]]) -> int:
    """How often numbers were left out: once per recovery at most, since clients may have seen them."""
    numbers = [number for number in seq_ids(items) if number is not None]
    return sum(later > earlier + 1 for earlier, later in itertools.pairwise(numbers))


@contextmanager
def run_cluster(folder: Path, url: str, provider: ScriptedProvider) -> Iterator[Cluster]:
    cluster = Cluster(folder, url, provider)
    try:
        yield cluster
    finally:
        cluster.close()
