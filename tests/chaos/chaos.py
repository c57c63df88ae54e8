"""Runs a chaos: three servers, clients, disturbances; then everything settles and is checked."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.client import Client
from tests.chaos.disturbance import Disturbance
from tests.chaos.invariants import find_violations
from tests.chaos.ledger import Ledger
from tests.chaos.load import play_stories
from tests.chaos.provider import DEFAULT, HELD, SOURCES, respond
from tests.support.cluster import Cluster, run_cluster
from tests.support.postgres_server import run_postgres
from tests.support.redis_server import RedisServer

from holdfast.testing import ScriptedProvider

SERVERS: Final = 3
_DISTURB_SECONDS: Final = 2.0
# No run is given up, however often its server dies.
_RECOVERIES: Final = "1000"


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    clients: int
    seed: int
    has_redis: bool = False


@dataclass(slots=True)
class Result:
    counts: Counter[str]
    violations: list[str] = field(default_factory=list)


def run_chaos(plan: Plan, folder: Path) -> Result:
    with (
        RedisServer() as redis,
        run_postgres() as postgres,
        ScriptedProvider.in_thread(default=DEFAULT, check_script=False) as provider,
        run_cluster(folder, postgres.create_empty(), provider) as cluster,
    ):
        provider.respond_with(respond)
        cluster.shared["HOLDFAST_MAX_RECOVERIES"] = _RECOVERIES
        if plan.has_redis:
            cluster.shared["HOLDFAST_REDIS_URL"] = redis.url
        cluster.need(SERVERS)
        return asyncio.run(_run(plan, cluster))


async def _run(plan: Plan, cluster: Cluster) -> Result:
    chance, ledger, stop = random.Random(plan.seed), Ledger(), asyncio.Event()
    tool_ids = await asyncio.to_thread(_create_tools, cluster)
    notes = cluster.tool_files / "notes"
    addresses = [server.address for server in cluster.servers]
    disturbance = Disturbance(cluster, chance)
    calm = asyncio.Event()

    async def play(number: int) -> None:
        own_chance = random.Random(plan.seed + number)
        client = Client(addresses, ledger, own_chance, tool_ids)
        await play_stories(client, own_chance, str(notes), stop)
        await client.aclose()

    async with asyncio.TaskGroup() as group:
        weather = group.create_task(disturbance.run(_DISTURB_SECONDS, calm))
        clients = [group.create_task(play(number)) for number in range(plan.clients)]
        # It ends before its time only if a server does not start again.
        await asyncio.wait([weather], timeout=plan.seconds)
        stop.set()
        await asyncio.wait(clients)
        calm.set()
    violations = list(disturbance.bad_lines)
    try:
        await asyncio.to_thread(cluster.facts.wait_until_quiet)
    except AssertionError as error:
        violations.append(f"the runs do not end: {error}")
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    violations += await asyncio.to_thread(find_violations, cluster, ledger, lines)
    counts = disturbance.counts + ledger.counts
    runs = cluster.facts.list_runs()
    counts["turns"] = len(runs)
    # Each claim and each release raises a run's fence.
    counts["recoveries"] = sum(max(0, run.fence - 1) // 2 for run in runs)
    counts["tools started"] = len(lines)
    counts["violations"] = len(violations)
    return Result(counts, violations)


def _create_tools(cluster: Cluster) -> list[str]:
    created = []
    for name, source in SOURCES.items():
        body = {"source_code": source, "default_requires_approval": name == HELD}
        answer = cluster.servers[0].http.put("/v1/tools/", json=body)
        answer.raise_for_status()
        created.append(str(answer.json()["id"]))
    return created
