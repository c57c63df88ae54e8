"""Bells on PostgreSQL for tests, and what they send."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.support.waiting import WAIT_SECONDS, eventually

from holdfast.adapters.bell.postgres import PostgresBell
from holdfast.adapters.bell.sender import CHANNEL
from holdfast.ports.bell import CALLBACKS, CANCELS, DEADLINES, RUNS, Bell

CONSTANT_TOPICS = (CANCELS, DEADLINES, CALLBACKS, RUNS)
# Often, so that a test of the check does not take long.
CHECK_SECONDS = 0.05


@asynccontextmanager
async def open_postgres_bell(
    url: str,
    *,
    listen_url: str | None = None,
    has_peers: Callable[[], bool] = lambda: True,
    check_seconds: float = CHECK_SECONDS,
    answer_seconds: float = WAIT_SECONDS,
) -> AsyncIterator[PostgresBell]:
    """A bell that may not be connected yet."""
    bell = PostgresBell(
        url,
        listen_url=listen_url,
        has_peers=has_peers,
        check_seconds=check_seconds,
        answer_seconds=answer_seconds,
    )
    await bell.open()
    try:
        yield bell
    finally:
        await bell.aclose()


@asynccontextmanager
async def connect_postgres_bell(url: str, **options: Any) -> AsyncIterator[PostgresBell]:
    """A bell that is connected, and whose rings at the start are used up."""
    async with open_postgres_bell(url, **options) as bell:
        await eventually(lambda: bell.is_connected)
        await clear_rings(bell)
        yield bell


async def clear_rings(bell: Bell) -> None:
    """Use up what a new connection has rung."""
    async with asyncio.timeout(WAIT_SECONDS):
        for topic in CONSTANT_TOPICS:
            await bell.wait(topic)


async def start_waiting(bell: Bell, topic: str) -> asyncio.Task[None]:
    """A task that waits already."""
    task = asyncio.create_task(bell.wait(topic))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


@dataclass
class SentPayloads:
    """What is sent on the bell's channel, received by a connection that does nothing else."""

    _connection: psycopg.Connection[Any]
    payloads: list[str] = field(default_factory=list)

    @property
    def topics(self) -> list[str]:
        return [topic for payload in self.payloads for topic in payload.split("\n")[1:]]

    def receive_until(self, is_enough: Callable[[], bool]) -> None:
        """Checks of connections are left out: they have no topics."""
        for notification in self._connection.notifies(timeout=WAIT_SECONDS):
            if "\n" in notification.payload:
                self.payloads.append(notification.payload)
            if is_enough():
                return
        raise TimeoutError


@contextmanager
def record_payloads(url: str) -> Iterator[SentPayloads]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'LISTEN "{CHANNEL}"'.encode())
        yield SentPayloads(connection)
