"""What a soak measures: of the server's processes by /proc, of its loop by /metrics, of its files by their sizes."""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psutil  # type: ignore[import-untyped]  # it brings no types
from tests.soak.growth import Tolerance
from tests.support.server_process import ServerProcess

_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the table. With ``per_turn`` it adds up, and what counts is its increase for each turn."""

    name: str
    unit: str
    tolerance: Tolerance
    per_turn: bool = False
    # By how much an idle server may have more of it after the load than before; None: it is not compared.
    idle_rise: float | None = None


# Why these tolerances: memory rises by fragments of the allocator for a while; the counts of a server under load jump
# by as many as there are clients; rows differ in size by a few texts; a failure logs ten times what a turn does.
FIGURES: Final = {
    "memory": Figure("memory of the server", "MB", Tolerance(share=0.05, amount=5)),
    "tool_memory": Figure("memory of the fork servers", "MB", Tolerance(share=0.05, amount=5)),
    "descriptors": Figure("descriptors", "", Tolerance(share=0.1, amount=8), idle_rise=5),
    "tasks": Figure("tasks of the loop", "", Tolerance(share=0.1, amount=8), idle_rise=2),
    "threads": Figure("threads", "", Tolerance(amount=4), idle_rise=4),
    "children": Figure("child processes", "", Tolerance(amount=4), idle_rise=0),
    "daemons": Figure("processes that tools left", "", Tolerance(amount=1), idle_rise=0),
    "temporary": Figure("temporary files", "", Tolerance(share=0.1, amount=10), idle_rise=2),
    "live_runs": Figure("live runs", "", Tolerance(amount=4), idle_rise=0),
    "wal": Figure("write-ahead log", "MB", Tolerance(share=0.2, amount=8)),
    "log": Figure("log per turn", "bytes", Tolerance(share=0.5, amount=50), per_turn=True),
    "database": Figure("database per turn", "bytes", Tolerance(share=0.2), per_turn=True),
}


@dataclass(frozen=True, slots=True)
class Sample:
    at_seconds: float
    turns: float
    values: Mapping[str, float]


class Sampler:
    def __init__(self, server: ServerProcess, temporary: Path, daemon_argument: str) -> None:
        self._server = server
        self._process = psutil.Process(server.pid)
        self._database = server.home / ".holdfast" / "holdfast.db"
        self._temporary = temporary
        self._daemon_command = ["sleep", daemon_argument]
        # Not the clients' connections: they are busy.
        self._http = httpx.Client(base_url=server.address, timeout=30)

    def take(self, at_seconds: float) -> Sample:
        metrics = self._http.get("/metrics").text
        children = self._process.children(recursive=True)
        values = {
            "memory": self._process.memory_info().rss / _MB,
            "tool_memory": sum(_resident(child) for child in self._process.children()) / _MB,
            "descriptors": self._process.num_fds(),
            "tasks": _sum_metric(metrics, "holdfast_tasks"),
            "threads": self._process.num_threads(),
            "children": len(children),
            "daemons": self._count_daemons(),
            "temporary": _count_files(self._temporary),
            "live_runs": _sum_metric(metrics, "holdfast_runs_live"),
            "wal": _size(self._database.with_name(f"{self._database.name}-wal")) / _MB,
            "log": self._server.log_bytes,
            "database": _used_bytes(self._database),
        }
        return Sample(at_seconds, _sum_metric(metrics, "holdfast_runs_total"), values)

    def close(self) -> None:
        self._http.close()

    def _count_daemons(self) -> int:
        found = psutil.process_iter(["cmdline"])
        return sum(process.info["cmdline"] == self._daemon_command for process in found)


def _resident(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(process.memory_info().rss)
    return 0.0


def _sum_metric(page: str, name: str) -> float:
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
    return sum(float(value) for value in found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _used_bytes(database: Path) -> int:
    """Of the pages that hold something, also those that are still in the write-ahead log: the file itself grows in
    steps, whenever the log is copied into it."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def _count_files(folder: Path) -> int:
    # Others remove files meanwhile.
    with suppress(OSError):
        return sum(1 for _ in folder.rglob("*"))
    return 0
