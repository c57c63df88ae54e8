"""What a second process brings when it has CPU time of its own: each is limited to the same share of a core.

Together they leave PostgreSQL, the provider and the load generator the CPU time that these need, so only the processes
limit the turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench import report
from bench.context import BenchContext
from bench.cpu_groups import Limit, NoControlGroups, open_cpu_groups
from bench.load import Load, run_load
from bench.measurements import Measurement, median
from bench.processes import measure_cpu_ms

RATIO_BUDGET = 1.6
# The deployments are loaded in turn, because machines swing.
ROUNDS = 3
# Two processes and what PostgreSQL does for them fit into one and a half cores.
SHARE = 0.35
# Of each process, enough to use its share. With the same number for one process as for two, the one would do more at a
# time, which costs it more CPU time a turn, and two would look better than they are.
CONVERSATIONS = 8


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one deployment, and where they listen."""

    addresses: Sequence[str]
    pids: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Result:
    load: Load
    # Of the CPU time of all processes, in percent. With two that have the same to do it is 50.
    busiest_percent: float


def measure(context: BenchContext, deployments: Sequence[Processes]) -> list[Measurement]:
    """Load one process, the two of a supervisor and two servers. Empty, and a line says why, if none can be limited."""
    try:
        with open_cpu_groups() as limit:
            _limit_all(limit, deployments)
            rounds = [[_load(context, each) for each in deployments] for _ in range(ROUNDS)]
    except NoControlGroups as error:
        report.progress(
            f"No control group can be made ({error}), so the rows of processes with a share of a core are left out."
        )
        return []
    one, supervised, separate = zip(*rounds, strict=True)
    each = f"{100 * SHARE:.0f} % of a core"
    return [
        *_measurements(f"turns/s, one process with {each}", one),
        *_measurements(f"turns/s, --processes 2, each with {each}", supervised),
        *_compare(one, supervised),
        *_measurements(f"turns/s, two servers, each with {each}", separate),
        *_compare(one, separate),
    ]


def _limit_all(limit: Limit, deployments: Sequence[Processes]) -> None:
    for deployment in deployments:
        for pid in deployment.pids:
            limit(pid, SHARE)


def _load(context: BenchContext, deployment: Processes) -> _Result:
    conversations = CONVERSATIONS * len(deployment.pids)
    before = list(map(measure_cpu_ms, deployment.pids))
    load = run_load(deployment.addresses, conversations, context.counts.load_seconds / 2)
    spent = [measure_cpu_ms(pid) - then for pid, then in zip(deployment.pids, before, strict=True)]
    return _Result(load, 100 * max(spent) / sum(spent))


def _measurements(what: str, results: Sequence[_Result]) -> list[Measurement]:
    return [
        Measurement(
            what=what,
            unit="turns/s",
            value=median([result.load.turns_per_second for result in results]),
            more_is_better=True,
        ),
        Measurement(
            what="  errors", unit="", value=sum(result.load.errors for result in results), budget=0
        ),
    ]


def _compare(ones: Sequence[_Result], twos: Sequence[_Result]) -> list[Measurement]:
    ratios = [
        two.load.turns_per_second / one.load.turns_per_second
        for one, two in zip(ones, twos, strict=True)
    ]
    return [
        Measurement(
            what="  times one process",
            unit="x",
            value=median(ratios),
            budget=RATIO_BUDGET,
            more_is_better=True,
        ),
        Measurement(
            what="  the busier process, of the CPU time of both",
            unit="%",
            value=median([two.busiest_percent for two in twos]),
        ),
    ]
