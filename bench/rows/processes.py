"""Turns per second of one process and of two, on PostgreSQL.

The load generator, the provider and PostgreSQL use the same cores. So the rows also say what a turn costs each of them:
from that follows what two processes can reach at most on this machine, and what a core of a server can do elsewhere.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import database
from bench.context import NO_VARIABLES, BenchContext
from bench.load import Load, run_load
from bench.measurements import Measurement

RATIO_BUDGET = 1.6


@dataclass(frozen=True, slots=True)
class _Cost:
    """A load, and the CPU time of one turn in milliseconds."""

    load: Load
    server_ms: float
    database_ms: float
    # The load generator and the provider.
    others_ms: float
    connections: int

    @property
    def rate(self) -> float:
        return self.load.turns_per_second


async def measure(context: BenchContext) -> list[Measurement]:
    one = await _measure_load(context, 1, NO_VARIABLES)
    supervised = await _measure_load(context, 1, {"HOLDFAST_PROCESSES": "2"})
    separate = await _measure_load(context, 2, NO_VARIABLES)
    at_once = f"{context.counts.conversations} conversations"
    return [
        *_measurements(f"turns/s on PostgreSQL, one process, {at_once}", one),
        Measurement(
            what="  turns/s for each core that the server uses",
            unit="turns/s",
            value=1000 / one.server_ms,
            more_is_better=True,
        ),
        Measurement(what="  connections to PostgreSQL", unit="", value=one.connections),
        *_measurements("turns/s, --processes 2", supervised),
        *_ratios(one, supervised),
        *_measurements("turns/s, two servers", separate),
        *_ratios(one, separate),
    ]


async def _measure_load(context: BenchContext, count: int, variables: Mapping[str, str]) -> _Cost:
    shared = context.new_shared_database()
    async with context.shared_servers(shared, count, variables) as servers:

        def measure_cpu() -> Sequence[float]:
            with database.connect(shared.url) as connection:
                of_database = database.measure_cpu_ms(connection)
            of_servers = sum(server.family_cpu_ms() for server in servers)
            return of_servers, of_database, context.provider.cpu_ms()

        before = measure_cpu()
        counts = context.counts
        addresses = [server.address for server in servers]
        load = run_load(addresses, counts.conversations, counts.load_seconds)
        of_servers, of_database, of_provider = (
            (now - then) / load.turns for now, then in zip(measure_cpu(), before, strict=True)
        )
        connections = database.count_connections(shared.url)
    others = of_provider + load.cpu_ms / load.turns
    return _Cost(load, of_servers, of_database, others, connections)


def _measurements(what: str, cost: _Cost) -> list[Measurement]:
    return [
        Measurement(what=what, unit="turns/s", value=cost.rate, more_is_better=True),
        Measurement(what="  errors", unit="", value=cost.load.errors, budget=0),
        Measurement(what="  CPU of a turn: the server", unit="ms", value=cost.server_ms),
        Measurement(what="  PostgreSQL", unit="ms", value=cost.database_ms),
        Measurement(what="  load generator and provider", unit="ms", value=cost.others_ms),
    ]


def _ratios(one: _Cost, two: _Cost) -> list[Measurement]:
    cores = os.cpu_count() or 1
    all_ms = two.server_ms + two.database_ms + two.others_ms
    limit = min(2.0, cores * 1000 / all_ms / one.rate)
    return [
        Measurement(
            what="  times one process",
            unit="",
            value=two.rate / one.rate,
            budget=RATIO_BUDGET,
            more_is_better=True,
        ),
        Measurement(
            what="  at most, since all share the cores", unit="", value=limit, more_is_better=True
        ),
        Measurement(
            what="  with cores enough: 2 x the CPU of a turn, one process : two",
            unit="",
            value=2 * one.server_ms / two.server_ms,
            more_is_better=True,
        ),
    ]
