"""The simulation of several servers must be deterministic, reach what it is about, and find deliberate bugs."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import closing

import pytest
from sqlalchemy import Connection, Row, update
from tests.simulation import loop
from tests.simulation.bus import Bus
from tests.simulation.disk import Disk
from tests.simulation.hosts import Host
from tests.simulation.many_servers import ManyServers
from tests.simulation.seeds import disks, iter_violations

from holdfast.adapters.dispatch.queue import QueueDispatch
from holdfast.adapters.lease import heartbeat
from holdfast.adapters.store import table_queue, tables
from holdfast.adapters.store.run_list import IS_LIVE
from holdfast.engine.deployment_tasks import Takeover
from holdfast.ports.bell import RUNS


def play_scenario(seed: int, disk: Disk) -> ManyServers:
    disk.wipe()
    scenario = ManyServers(seed, disk)
    loop.run(scenario.play())
    return scenario


def find_trace(words: str) -> str:
    """The first trace with this violation."""
    with closing(iter_violations(range(600), ManyServers)) as told:
        return next(story for story in told if words in story)


def test_a_seed_always_tells_the_same_story() -> None:
    with disks() as disk:
        for seed in range(10):
            first, second = play_scenario(seed, disk), play_scenario(seed, disk)
            assert first.trace == second.trace


def test_what_several_servers_are_about_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are taken over and go on elsewhere, servers are paused, and commits land late."""
    seen: set[str] = set()
    pause, commit_later, send = Host._pause, Disk.commit_later, Bus.send

    def record_pause(host: Host, seconds: float) -> None:
        seen.add("a pause")
        pause(host, seconds)

    def record_commit(disk: Disk, *args: object) -> None:
        seen.add("a late commit")
        commit_later(disk, *args)  # type: ignore[arg-type] # passed on as it came

    def record_ring(bus: Bus, *args: object) -> None:
        seen.add("a ring")
        send(bus, *args)  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(Host, "_pause", record_pause)
    monkeypatch.setattr(Disk, "commit_later", record_commit)
    monkeypatch.setattr(Bus, "send", record_ring)
    with disks() as disk:
        for seed in range(100):
            scenario = play_scenario(seed, disk)
            story = "\n".join(scenario.trace)
            words = ("is taken from", "is claimed by", "ACT crash", "ACT stop", "ACT cut")
            seen |= {found for found in words if found in story}
            seen |= {"a recovery"} if scenario.ledger.resumed else set()
            logs = scenario.ledger.logs.values()
            seen |= {"a stale event"} if any(log.stale for log in logs) else set()
    assert seen == {
        *words,
        "a pause",
        "a late commit",
        "a ring",
        "a recovery",
        "a stale event",
    }


def test_a_release_that_keeps_the_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tables.runs

    def release(
        connection: Connection, server_ids: Collection[str], keep: Collection[str]
    ) -> Sequence[Row[tuple[str, str, str]]]:
        released = (
            update(runs)
            .where(IS_LIVE, runs.c.owner_id.in_(server_ids), runs.c.id.not_in(keep))
            .values(owner_id=None)
            .returning(runs.c.id, runs.c.thread_id, runs.c.status)
        )
        return connection.execute(released).all()

    monkeypatch.setattr(table_queue, "release_runs", release)
    assert find_trace("has another owner and the same fence")


def test_a_takeover_that_does_not_happen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Takeover, "run", sleep)
    assert find_trace("live: ['run-")


def test_a_queue_that_is_only_read_when_it_rings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listen(dispatch: QueueDispatch) -> None:
        while True:
            await dispatch._bell.wait(RUNS)
            dispatch._note_runs()

    monkeypatch.setattr(QueueDispatch, "_listen", listen)
    assert find_trace("live: ['run-")


def test_a_server_that_goes_on_after_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "OWN_PART", 1.6)
    assert find_trace("was taken over")
