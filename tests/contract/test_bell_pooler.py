"""Bells behind a pooler, which passes on notifications only while a statement of the listener is being answered."""

import threading
from typing import Any

import psycopg
import pytest
from tests.support.bells import connect_postgres_bell, open_postgres_bell
from tests.support.pgbouncer import PGBOUNCER_PROBLEM, run_pgbouncer
from tests.support.waiting import eventually

from holdfast.adapters.bell.listener import Listener
from holdfast.adapters.bell.notify_connection import NotifyConnection
from holdfast.adapters.bell.round_trip import find_fault
from holdfast.adapters.bell.sender import CHANNEL, Sender

pytestmark = pytest.mark.slow
needs_pgbouncer = pytest.mark.skipif(bool(PGBOUNCER_PROBLEM), reason=str(PGBOUNCER_PROBLEM))

SENDER_ID = "this server"
SHORT_ANSWER_SECONDS = 0.2
ATTEMPTS = 3


class EarlyConnection(NotifyConnection):
    """A ring of this server has arrived before anybody waits for one; no other will."""

    def __init__(self, url: str) -> None:
        super().__init__(url, name="early")
        self.attempts = threading.Semaphore(0)

    def connect(self) -> psycopg.Connection[Any]:
        connection = super().connect()
        connection.execute(f'LISTEN "{CHANNEL}"'.encode())
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f"{SENDER_ID}\nruns"))
        connection.execute("UNLISTEN *")
        self.attempts.release()
        return connection


def test_a_ring_that_came_with_the_answer_to_listen_does_not_show_that_others_will(
    postgres_url: str,
) -> None:
    connection, connected = EarlyConnection(postgres_url), threading.Event()
    listener = Listener(
        connection,
        # It is not started: no echo is sent.
        Sender(NotifyConnection(postgres_url, name="silent"), SENDER_ID),
        sender_id=SENDER_ID,
        check_seconds=SHORT_ANSWER_SECONDS,
        answer_seconds=SHORT_ANSWER_SECONDS,
        on_connect=connected.set,
        on_rings=lambda _: None,
    )
    listener.start()
    try:
        for _ in range(ATTEMPTS):
            assert connection.attempts.acquire(timeout=20)
            assert not connected.is_set()
    finally:
        listener.stop()


@needs_pgbouncer
async def test_a_bell_behind_a_transaction_pooler_polls(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with run_pgbouncer(postgres_url, pool_mode="transaction") as pooler:
        async with open_postgres_bell(pooler.url, answer_seconds=SHORT_ANSWER_SECONDS) as bell:
            await eventually(lambda: "bell.disconnected" in caplog.messages)
            assert not bell.is_connected


@needs_pgbouncer
async def test_a_bell_that_listens_beside_the_transaction_pooler_is_connected(
    postgres_url: str,
) -> None:
    with run_pgbouncer(postgres_url, pool_mode="transaction") as pooler:
        async with connect_postgres_bell(pooler.url, listen_url=postgres_url) as bell:
            assert bell.is_connected
        assert find_fault(pooler.url, postgres_url, seconds=20) is None


@needs_pgbouncer
async def test_a_bell_behind_a_session_pooler_is_connected(postgres_url: str) -> None:
    with run_pgbouncer(postgres_url, pool_mode="session") as pooler:
        async with connect_postgres_bell(pooler.url) as bell:
            assert bell.is_connected
        assert find_fault(pooler.url, pooler.url, seconds=20) is None
