"""Servers that start at once, differ in their roles, or have a wrong clock."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import lt

import pytest
from tests.support.client_objects import eventually
from tests.support.cluster import LEASE_SECONDS, Cluster, ClusterServer
from tests.support.server_launcher import CLOCK_OFFSET
from tests.support.stream_items import assert_ended, text_of
from tests.support.weather_scenes import begin_answer, create_agent, send_patiently

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
HOUR = 3600
# The database counts in microseconds.
SECOND = 1_000_000
# Ten minutes: more than all of these tests take, far less than an hour.
FAR_OFF = 600 * SECOND


def test_two_servers_that_start_at_once_on_an_empty_database_both_work(
    cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    starting = [pool.submit(cluster.start) for _ in range(2)]

    first, second = (one.result(WAIT_SECONDS) for one in starting)

    agent_id = create_agent(first)
    assert send_patiently([second.address], agent_id, "One?")
    assert send_patiently([first.address], agent_id, "Two?")
    assert cluster.facts.list_alive_pids() >= {first.pid, second.pid}


@pytest.mark.parametrize("offset", [HOUR, -HOUR], ids=["fast", "slow"])
def test_a_server_whose_clock_is_an_hour_off_keeps_its_runs_and_takes_none(
    cluster: Cluster, offset: int
) -> None:
    (right,) = cluster.need(1)
    wrong = cluster.start(**{CLOCK_OFFSET: str(offset)})
    runs = {server: begin_answer(cluster, server, "Never.") for server in (right, wrong)}
    begun_at = {server: read_heartbeat(cluster, server) for server in runs}

    # Each has renewed its lease, and looked for dead servers, for longer than a lease lasts.
    for server in runs:
        eventually(
            partial(read_heartbeat, cluster, server),
            partial(lt, begun_at[server] + float(LEASE_SECONDS) * SECOND),
        )

    for server, answering in runs.items():
        assert cluster.find_owner(answering.run_id) is server
        answering.gate.release()
        assert cluster.wait_for_end(answering.run_id) == "completed"
        assert cluster.read_history(answering.agent_id)[-1]["content"] == "I was about"
    assert list_wrong_times(cluster) == []
    wrong.stop()


@pytest.mark.parametrize("offset", [HOUR, -HOUR], ids=["fast", "slow"])
def test_a_server_whose_clock_is_an_hour_off_goes_on_with_the_runs_of_a_dead_one(
    cluster: Cluster, offset: int
) -> None:
    for server in cluster.alive:
        server.stop()
    wrong = cluster.start(**{CLOCK_OFFSET: str(offset)})
    victim = cluster.start()
    answering = begin_answer(cluster, victim)

    victim.kill()
    answering.gate.release()

    assert cluster.wait_for_end(answering.run_id) == "completed"
    assert cluster.find_owner(answering.run_id) is wrong
    assert list_wrong_times(cluster) == []


def read_heartbeat(cluster: Cluster, server: ClusterServer) -> int:
    """When it last renewed its lease, in microseconds by the clock of the database."""
    query = "SELECT max(heartbeat_at) AS heartbeat_at FROM servers WHERE pid = :pid"
    (found,) = cluster.facts.fetch(query, pid=server.pid)
    return int(found.heartbeat_at)


def list_wrong_times(cluster: Cluster) -> list[str]:
    """The runs, steps and messages that were not written now, by the clock of the database."""
    now = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
    times = {
        "runs": "created_at",
        "runs ": "completed_at",
        "messages": "created_at",
        "steps": "created_at",
    }
    return [
        f"{column} of {table} {row.id}: {row.seconds} s"
        for table, column in times.items()
        for row in cluster.facts.fetch(
            f"SELECT *, ({column} - {now}) / 1000000 AS seconds FROM {table} WHERE abs({column} - {now}) > {FAR_OFF}"
        )
    ]


def test_servers_that_answer_and_servers_that_execute_work_as_one(
    cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    for server in cluster.alive:
        server.stop()
    api = cluster.start("--role", "api")
    worker = cluster.start("--role", "worker")
    answering = begin_answer(cluster, api)
    assert cluster.find_owner(answering.run_id) is worker
    reader = pool.submit(api.stream, answering.run_id)

    worker.kill()
    other = cluster.start("--role", "worker")
    answering.gate.release()

    told = reader.result(WAIT_SECONDS)
    assert text_of(told).endswith("Second try.")
    assert_ended(told, "end_turn")
    assert cluster.find_owner(answering.run_id) is other
    cancelled = begin_answer(cluster, api, "Never.")
    assert api.http.post(f"/v1/runs/{cancelled.run_id}/cancel").json()["status"] == "cancelled"
    assert cluster.wait_for_end(cancelled.run_id) == "cancelled"
    cancelled.gate.release()
    assert send_patiently([api.address], answering.agent_id, "Still there?")
