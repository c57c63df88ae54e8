"""Clients that send without a pause while something happens to the servers, and what they must find afterwards."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.support.cluster import Cluster
from tests.support.weather_scenes import create_agent, send_patiently

SENDERS = 4
_WAIT_SECONDS = 60


class Load:
    """Clients that send one message after the other, each to any server (or to ``addresses``), until they are told to
    stop."""

    def __init__(
        self, cluster: Cluster, pool: ThreadPoolExecutor, addresses: Sequence[str] | None = None
    ) -> None:
        self._addresses = addresses or [server.address for server in cluster.alive]
        self._agents = [create_agent(cluster.alive[0]) for _ in range(SENDERS)]
        self._stop = threading.Event()
        self._answered = threading.Semaphore(0)
        self._cluster = cluster
        self._senders: Sequence[Future[list[str]]] = [
            pool.submit(self._send, agent_id) for agent_id in self._agents
        ]

    def wait_for_answers(self, count: int) -> None:
        for _ in range(count):
            assert self._answered.acquire(timeout=_WAIT_SECONDS)

    def finish(self) -> None:
        """Stop the senders. Every message is in its history, once and in order, each with its answer."""
        self._stop.set()
        for agent_id, sender in zip(self._agents, self._senders, strict=True):
            sent = sender.result(_WAIT_SECONDS)
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
