"""Servers on hosts of their own, whose network swallows packets: nothing is refused, and nobody is told.

A TCP proxy (test_network.py) cannot show that: the kernel of its machine goes on to acknowledge what a server sends.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.client_objects import eventually
from tests.support.cluster import Cluster, ClusterServer
from tests.support.network_hosts import (
    CLIENTS,
    DATABASE,
    REDIS,
    Host,
    Link,
    Network,
    find_problem,
)
from tests.support.postgres_server import run_postgres
from tests.support.redis_server import PORT as REDIS_PORT
from tests.support.redis_server import RedisServer
from tests.support.server_launcher import start_launcher
from tests.support.steady_load import SENDERS, Load
from tests.support.stream_items import assert_ended, text_of
from tests.support.tool_gate import ToolGate
from tests.support.weather_scenes import LEAVE_LINE, begin_answer, begin_tools, create_agent

from holdfast.testing import Answer, Gate, ScriptedProvider, ToolCall

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
# For the address of the database: what takes half a minute by default takes a few seconds.
SHORT_LIMITS = {
    "connect_timeout": "2",
    "keepalives_idle": "1",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "3000",
}

Break = Callable[[Link], None]
BREAKS = [
    pytest.param(Link.swallow, id="all-packets"),
    pytest.param(Link.swallow_answers, id="answers-only"),
]


class HostedServers:
    """Two servers, each on a host of its own."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        self.cluster = cluster
        self.hosts = [network.add_host() for _ in range(2)]
        self.servers = [cluster.start(**host.variables) for host in self.hosts]

    @property
    def cut_off(self) -> tuple[ClusterServer, Host]:
        """The server to which the test does something."""
        return self.servers[0], self.hosts[0]

    @property
    def other(self) -> ClusterServer:
        return self.servers[1]

    def restore(self) -> None:
        for host in self.hosts:
            host.database.restore()
            host.redis.restore()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """The site, where this thread is until the last test here has ended."""
    if problem := find_problem():
        pytest.skip(f"{problem} The tests with a TCP proxy show the rest.")
    # It serves other tests too, so it must not be at the site.
    start_launcher()
    with ExitStack() as stack:
        network = Network(stack)
        with network.site.enter():
            yield network


@pytest.fixture(scope="module")
def running(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedServers]:
    with ExitStack() as stack:
        provider = stack.enter_context(
            ScriptedProvider.in_thread(host=CLIENTS, default="Hello.", check_script=False)
        )
        url = stack.enter_context(run_postgres(listen_on=DATABASE)).create_empty()
        stack.enter_context(RedisServer(listen_on=REDIS))
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), url, provider)
        stack.callback(cluster.close)
        cluster.shared = {
            "HOLDFAST_DATABASE_URL": make_url(url)
            .set(host=DATABASE, query={})
            .render_as_string(hide_password=False),
            "HOLDFAST_REDIS_URL": f"redis://{REDIS}:{REDIS_PORT}",
        }
        yield HostedServers(cluster, network)


@pytest.fixture
def hosted(running: HostedServers) -> Iterator[HostedServers]:
    running.cluster.provider.reset()
    yield running
    running.restore()
    running.cluster.assert_well()


class Calling:
    """A run whose model waits at a gate before it asks for a tool. If it is asked again, it does so at once."""

    def __init__(self, cluster: Cluster, server: ClusterServer) -> None:
        text = f"Leave a line {uuid4()}"
        self.log = cluster.tool_files / f"lines-{uuid4()}"
        self.gate = Gate(f"the call of {text}")
        cluster.provider.script(
            Answer(self.gate, _leave_line(self.log, "of the first answer")),
            Answer(_leave_line(self.log, "of the second answer")),
            "Done.",
            when=lambda request: request.user_text == text,
        )
        self.agent_id = create_agent(server, LEAVE_LINE)
        self.run_id = server.send_async(self.agent_id, text)
        self.gate.reached.block()


def _leave_line(log: Path, line: str) -> ToolCall:
    return ToolCall("leave_line", {"log": str(log), "line": line})


@pytest.mark.parametrize("break_link", BREAKS)
def test_a_server_whose_packets_vanish_stops_its_runs_and_another_goes_on_with_them(
    hosted: HostedServers, pool: ThreadPoolExecutor, break_link: Break
) -> None:
    cluster, other = hosted.cluster, hosted.other
    lonely, host = hosted.cut_off
    renewed = lonely.process.log.count("lease.renewed")
    answering = begin_answer(cluster, lonely)
    first = cluster.provider.requests[0]
    calling = Calling(cluster, lonely)
    with host.namespace.enter():
        door = ToolGate()
    tools = begin_tools(cluster, lonely, door)
    runs = (answering, calling, tools)
    reader = pool.submit(other.stream, answering.run_id)

    with door.wait_for_tool():
        assert all(cluster.find_owner(run.run_id) is lonely for run in runs)
        break_link(host.database)
        # A tool that it may not start, since it cannot store that it does.
        calling.gate.release()

    # Nobody has told it: its own clock has.
    first.finished.block(WAIT_SECONDS)
    assert first.closed_early
    assert [cluster.wait_for_end(run.run_id) for run in runs] == ["completed"] * 3
    assert all(cluster.find_owner(run.run_id) is other for run in runs)
    told = reader.result(WAIT_SECONDS)
    assert text_of(told).endswith("Second try.")
    assert_ended(told, "end_turn")
    answering.gate.release()
    histories = [cluster.read_history(run.agent_id, other) for run in runs]
    streams = [other.stream(run.run_id) for run in runs]

    host.database.restore()
    wait_for_count(lonely, "lease.renewed", more_than=renewed)

    assert [cluster.read_history(run.agent_id, other) for run in runs] == histories
    assert [other.stream(run.run_id) for run in runs] == streams
    assert tools.log.read_text(encoding="utf-8") == "entered\n"
    assert calling.log.read_text(encoding="utf-8") == "of the second answer\n"
    again = begin_answer(cluster, lonely)
    assert cluster.find_owner(again.run_id) is lonely
    again.gate.release()
    assert cluster.wait_for_end(again.run_id) == "completed"


def test_a_transaction_of_a_server_that_vanished_keeps_no_run_from_the_others(
    hosted: HostedServers,
) -> None:
    cluster = hosted.cluster
    lonely, host = hosted.cut_off
    answering = begin_answer(cluster, lonely)

    with psycopg.connect(cluster.url) as blocker:
        blocker.execute("LOCK TABLE messages IN SHARE MODE")
        answering.gate.release()
        # It has locked its run by then, and waits to store the answer.
        wait_for_backends(cluster, host, "wait_event_type = 'Lock'")
        host.database.swallow()
    wait_for_backends(cluster, host, "state = 'idle in transaction'")

    assert cluster.wait_for_end(answering.run_id) == "completed"
    assert cluster.find_owner(answering.run_id) is hosted.other
    assert text_of(hosted.other.stream(answering.run_id)).endswith("Second try.")


def wait_for_backends(
    cluster: Cluster, host: Host, condition: str, *, are_there: bool = True
) -> None:
    """Wait until processes of PostgreSQL that serve the host are in this state, or none is."""
    query = (
        f"SELECT FROM pg_stat_activity WHERE client_addr = CAST(:address AS inet) AND {condition}"
    )
    eventually(
        lambda: cluster.facts.fetch(query, address=host.database.address),
        lambda found: bool(found) is are_there,
    )


def wait_for_count(server: ClusterServer, event: str, *, more_than: int) -> None:
    eventually(lambda: server.process.log.count(event), lambda count: count > more_than)


def test_readers_elsewhere_get_everything_if_the_packets_to_redis_vanish(
    hosted: HostedServers, pool: ThreadPoolExecutor
) -> None:
    writer, _ = hosted.cut_off
    answering = begin_answer(hosted.cluster, writer)
    following = pool.submit(hosted.other.stream, answering.run_id)

    for host in hosted.hosts:
        host.redis.swallow()
    answering.gate.release()

    told = following.result(WAIT_SECONDS)
    assert text_of(told) == "I was about"
    assert_ended(told, "end_turn")


def test_a_database_whose_host_vanishes_for_all_servers_loses_no_message(
    hosted: HostedServers, pool: ThreadPoolExecutor
) -> None:
    lonely, host = hosted.cut_off
    with host.namespace.enter():
        door = ToolGate()
    tools = begin_tools(hosted.cluster, lonely, door)
    load = Load(hosted.cluster, pool)
    load.wait_for_answers(2 * SENDERS)
    lost = [server.process.log.count("lease.lost") for server in hosted.servers]

    with door.wait_for_tool():
        for each in hosted.hosts:
            each.database.swallow()
        for server, before in zip(hosted.servers, lost, strict=True):
            wait_for_count(server, "lease.lost", more_than=before)
    hosted.restore()

    load.wait_for_answers(2 * SENDERS)
    load.finish()
    assert hosted.cluster.wait_for_end(tools.run_id) == "completed"
    assert tools.log.read_text(encoding="utf-8") == "entered\n"


def test_a_server_and_its_database_both_notice_that_the_other_has_vanished(
    hosted: HostedServers, network: Network
) -> None:
    cluster, host = hosted.cluster, network.add_host()
    url = make_url(cluster.shared["HOLDFAST_DATABASE_URL"]).update_query_dict(SHORT_LIMITS)
    lonely = cluster.start(**host.variables, HOLDFAST_DATABASE_URL=url.render_as_string(False))
    agent_id = create_agent(lonely)
    wait_for_backends(cluster, host, "application_name = 'holdfast-listen'")

    host.database.swallow()

    # The pool, the heartbeat and the notifications, each by a limit of its own.
    assert lonely.http.get(f"/v1/agents/{agent_id}").status_code == 503
    wait_for_count(lonely, "lease.lost", more_than=0)
    wait_for_count(lonely, "bell.disconnected", more_than=0)
    # Else each server that vanishes would keep eleven connections for two hours.
    wait_for_backends(cluster, host, "true", are_there=False)
    host.database.restore()
    wait_for_count(lonely, "lease.renewed", more_than=0)
    wait_for_count(lonely, "bell.connected", more_than=0)
    assert lonely.http.get(f"/v1/agents/{agent_id}").status_code == 200
    lonely.stop()
