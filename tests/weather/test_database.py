"""A PostgreSQL that is restarted, or has no connection left, while clients send."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from tests.support.client_objects import eventually
from tests.support.cluster import Cluster
from tests.support.postgres_server import PostgresServer
from tests.support.steady_load import SENDERS, Load
from tests.support.weather_scenes import begin_answer, create_agent, send_patiently

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60


def test_a_database_that_is_restarted_loses_no_message(
    own_cluster: Cluster, own_postgres: PostgresServer, pool: ThreadPoolExecutor
) -> None:
    own_cluster.need(2)
    load = Load(own_cluster, pool)
    answering = begin_answer(own_cluster, own_cluster.alive[0])
    load.wait_for_answers(2 * SENDERS)

    own_postgres.stop()
    answering.gate.release()
    own_postgres.start()

    load.wait_for_answers(2 * SENDERS)
    load.finish()
    assert own_cluster.wait_for_end(answering.run_id) == "completed"


def test_a_database_without_a_free_connection_loses_no_message(
    own_cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    own_cluster.need(2)
    # Before there is load: servers have opened few connections by now, and get no more.
    agent_id = create_agent(own_cluster.alive[0])
    with ExitStack() as others:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):  # noqa: PT012 - one of many is refused
            while True:
                others.enter_context(psycopg.connect(own_cluster.url))
        senders = [
            pool.submit(send_patiently, [server.address], agent_id, f"to {server.pid}, {number}")
            for server in own_cluster.alive
            for number in range(SENDERS)
        ]
        eventually(
            lambda: [server.process.log for server in own_cluster.alive],
            lambda logs: (
                any("too many clients" in log for log in logs)
                or any(sender.done() for sender in senders)
            ),
        )

    answers = [sender.result(WAIT_SECONDS) for sender in senders]

    assert len(answers) == 2 * SENDERS
    load = Load(own_cluster, pool)
    load.wait_for_answers(SENDERS)
    load.finish()


def test_a_rolling_restart_under_load_loses_no_message(
    own_cluster: Cluster, pool: ThreadPoolExecutor
) -> None:
    own_cluster.need(2)
    load = Load(own_cluster, pool)

    for server in list(own_cluster.servers):
        load.wait_for_answers(SENDERS)
        assert server.stop() == 0
        own_cluster.restart(server)

    load.wait_for_answers(SENDERS)
    load.finish()
