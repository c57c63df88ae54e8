"""What PostgreSQL does for the servers of a row: its CPU time, what it writes, the connections and the notifications."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]  # it brings no types
import psycopg

# Rings of servers, and Procrastinate's announcements of new jobs.
CHANNELS = ("holdfast", "procrastinate_queue_v1#runs")
_LISTEN_SECONDS = 0.1
_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DatabaseUse:
    """What it has done so far; only differences are meaningful."""

    cpu_ms: float
    wal_bytes: int
    event_bytes: int
    bytes: int

    def __sub__(self, other: "DatabaseUse") -> "DatabaseUse":
        return DatabaseUse(
            self.cpu_ms - other.cpu_ms,
            self.wal_bytes - other.wal_bytes,
            self.event_bytes - other.event_bytes,
            self.bytes - other.bytes,
        )


def measure_use(url: str) -> DatabaseUse:
    """CPU time and log are those of the whole PostgreSQL, which works for one row at a time."""
    with connect(url) as connection:
        wal, events, whole = _fetch(
            connection,
            "SELECT pg_current_wal_lsn() - '0/0', pg_total_relation_size('events'), pg_database_size(current_database())",
        )
        return DatabaseUse(measure_cpu_ms(connection), int(wal), events, whole)


def measure_cpu_ms(connection: psycopg.Connection[Any]) -> float:
    """CPU time of all processes of PostgreSQL: those that live, and those whose end it has seen."""
    (backend,) = _fetch(connection, "SELECT pg_backend_pid()")
    postmaster = psutil.Process(psutil.Process(backend).ppid())
    spent = postmaster.cpu_times()
    seconds = spent.user + spent.system + spent.children_user + spent.children_system
    for child in postmaster.children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system
    return float(seconds) * 1000


def count_connections(url: str) -> int:
    """The connections to this database, without the one that counts."""
    with connect(url) as connection:
        (count,) = _fetch(
            connection,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
    return int(count)


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, application_name="bench")


class NotificationCounter:
    """Counts the notifications between servers, as one more listener."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.count = 0
        self._connection = connection
        self._stopping = threading.Event()

    def listen(self) -> None:
        while not self._stopping.is_set():
            self.count += len(list(self._connection.notifies(timeout=_LISTEN_SECONDS)))

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def count_notifications(url: str) -> Iterator[NotificationCounter]:
    with connect(url) as connection:
        for channel in CHANNELS:
            connection.execute(f'LISTEN "{channel}"'.encode())
        counter = NotificationCounter(connection)
        thread = threading.Thread(target=counter.listen, daemon=True)
        thread.start()
        try:
            yield counter
        finally:
            counter.stop()
            thread.join(_STOP_SECONDS)


def _fetch(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(query.encode()).fetchone()
    if row is None:
        raise RuntimeError(f"PostgreSQL answered nothing to {query}.")
    return row
