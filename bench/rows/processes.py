"""Turns per second of one process and of two, on PostgreSQL.

The load generator, the provider and PostgreSQL use the same cores. So the rows also say what a turn costs each of them:
from that follows what two processes can reach at most on this machine, and what a core of a server can do elsewhere. Two
servers with a database each, which share nothing, show what the busy machine costs and what sharing does. What a second
process brings when there is CPU time for it, ``limited_processes`` shows.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import starmap

from bench import database
from bench.context import BenchContext, SharedDatabase
from bench.load import Load, run_load
from bench.measurements import Measurement, median
from bench.processes import RunningProcess
from bench.rows import limited_processes
from bench.rows.limited_processes import RATIO_BUDGET, ROUNDS


@dataclass(frozen=True, slots=True)
class _Deployment:
    shared: SharedDatabase
    servers: Sequence[RunningProcess]


@dataclass(frozen=True, slots=True)
class _Cost:
    """A load, and the CPU time of one turn in milliseconds."""

    load: Load
    server_ms: float
    database_ms: float
    # The load generator and the provider.
    others_ms: float

    @property
    def rate(self) -> float:
        return self.load.turns_per_second

    @property
    def all_ms(self) -> float:
        return self.server_ms + self.database_ms + self.others_ms


async def measure(context: BenchContext) -> list[Measurement]:
    async with AsyncExitStack() as stack:

        async def start(count: int, **variables: str) -> _Deployment:
            shared = context.new_shared_database()
            servers = context.shared_servers(shared, count, variables)
            return _Deployment(shared, await stack.enter_async_context(servers))

        alone, other = await start(1), await start(1)
        deployments = [
            alone,
            await start(1, HOLDFAST_PROCESSES="2"),
            await start(2),
            _Deployment(alone.shared, [*alone.servers, *other.servers]),
        ]
        children = await deployments[1].servers[0].wait_for_children(2)
        rounds = [[_load(context, each) for each in deployments] for _ in range(ROUNDS)]
        connections = database.count_connections(alone.shared.url)
        limited = limited_processes.measure(
            context,
            [
                limited_processes.Processes(
                    [server.address for server in each.servers],
                    pids or [server.process.pid for server in each.servers],
                )
                for each, pids in zip(deployments[:3], (None, children, None), strict=True)
            ],
        )
    one, supervised, separate, unshared = zip(*rounds, strict=True)
    # Where the processes could be limited, those rows show whether the budget holds.
    budget = None if limited else RATIO_BUDGET
    at_once = f"{context.counts.conversations} conversations"
    return [
        *_measurements(f"turns/s on PostgreSQL, one process, {at_once}", one),
        Measurement(
            what="  turns/s for each core that the server uses",
            unit="turns/s",
            value=1000 / median([cost.server_ms for cost in one]),
            more_is_better=True,
        ),
        Measurement(what="  connections to PostgreSQL", unit="", value=connections),
        *_measurements("turns/s, --processes 2", supervised),
        *_ratios(one, supervised, unshared, budget),
        *_measurements("turns/s, two servers", separate),
        *_ratios(one, separate, unshared, budget),
        *_measurements("turns/s, two servers with a database each", unshared),
        *limited,
    ]


def _load(context: BenchContext, deployment: _Deployment) -> _Cost:
    def measure_cpu() -> Sequence[float]:
        with database.connect(deployment.shared.url) as connection:
            of_database = database.measure_cpu_ms(connection)
        of_servers = sum(server.family_cpu_ms() for server in deployment.servers)
        return of_servers, of_database, context.provider.cpu_ms()

    counts, addresses = context.counts, [server.address for server in deployment.servers]
    before = measure_cpu()
    load = run_load(addresses, counts.conversations, counts.load_seconds / 2)
    of_servers, of_database, of_provider = (
        (now - then) / load.turns for now, then in zip(measure_cpu(), before, strict=True)
    )
    return _Cost(load, of_servers, of_database, of_provider + load.cpu_ms / load.turns)


def _measurements(what: str, costs: Sequence[_Cost]) -> list[Measurement]:
    def middle(read: Callable[[_Cost], float]) -> float:
        return median([read(cost) for cost in costs])

    return [
        Measurement(
            what=what, unit="turns/s", value=middle(lambda cost: cost.rate), more_is_better=True
        ),
        Measurement(
            what="  errors", unit="", value=sum(cost.load.errors for cost in costs), budget=0
        ),
        Measurement(
            what="  CPU of a turn: the server", unit="ms", value=middle(lambda cost: cost.server_ms)
        ),
        Measurement(what="  PostgreSQL", unit="ms", value=middle(lambda cost: cost.database_ms)),
        Measurement(
            what="  load generator and provider",
            unit="ms",
            value=middle(lambda cost: cost.others_ms),
        ),
    ]


def _ratios(
    ones: Sequence[_Cost],
    twos: Sequence[_Cost],
    unshared: Sequence[_Cost],
    ratio_budget: float | None,
) -> list[Measurement]:
    def ratio(
        what: str,
        costs: Sequence[_Cost],
        divide: Callable[[_Cost, _Cost], float],
        budget: float | None = None,
    ) -> Measurement:
        return Measurement(
            what=what,
            unit="x",
            value=median(list(starmap(divide, zip(costs, twos, strict=True)))),
            budget=budget,
            more_is_better=True,
        )

    return [
        ratio("  times one process", ones, lambda one, two: two.rate / one.rate, ratio_budget),
        ratio("  at most, since all share the cores", ones, _highest_ratio),
        ratio(
            "  with cores enough: 2 x the CPU of a turn, nothing shared : shared",
            unshared,
            lambda apart, two: 2 * apart.server_ms / two.server_ms,
        ),
    ]


def _highest_ratio(one: _Cost, two: _Cost) -> float:
    """One process is bound by its core, two by all cores."""
    cores = os.cpu_count() or 1
    return min(2.0, (cores / two.all_ms) / min(1 / one.server_ms, cores / one.all_ms))
