"""A PostgreSQL that is restarted, or has no connection left, while clients send."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from tests.support.client_objects import eventually
from tests.support.cluster import Cluster
from tests.support.postgres_server import PostgresServer
from tests.support.weather_scenes import begin_answer, create_agent, send_patiently

pytestmark = pytest.mark.slow

WAIT_SECONDS = 60
SENDERS = 4


class Load:
    """Clients that send one message after the other, each to any server, until they are told to stop."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._addresses = [server.address for server in cluster.alive]
        self._agents = [create_agent(cluster.alive[0]) for _ in range(SENDERS)]
        self._stop = threading.Event()
        self._answered = threading.Semaphore(0)
        self._cluster = cluster
        self._senders: Sequence[Future[list[str]]] = [
            pool.submit(self._send, agent_id) for agent_id in self._agents
        ]

    def wait_for_answers(self, count: int) -> None:
        for _ in range(count):
            assert self._answered.acquire(timeout=WAIT_SECONDS)

    def finish(self) -> None:
        """Stop the senders. Every message is in its history, once and in order, each with its answer."""
        self._stop.set()
        for agent_id, sender in zip(self._agents, self._senders, strict=True):
            sent = sender.result(WAIT_SECONDS)
            rows = self._cluster.alive[0].client.agents.messages.list(agent_id, limit=1000).items
            said = [row for row in map(_text_of_user, rows) if row is not None]
            assert said == sent

    def _send(self, agent_id: str) -> list[str]:
        sent: list[str] = []
        while not self._stop.is_set():
            sent.append(f"message {len(sent)}")
            send_patiently(self._addresses, agent_id, sent[-1])
            self._answered.release()
        return sent


def _text_of_user(row: Any) -> str | None:
    return str(row.content) if row.message_type == "user_message" else None


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
