"""A few minutes of several servers on one store: they are paused, cut off, stopped and killed, and the others go on."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tests.simulation.bus import Bus
from tests.simulation.chance import LONGEST_INTERRUPTION_SECONDS, Chance
from tests.simulation.disk import Disk
from tests.simulation.process import Equipment, Process, World
from tests.simulation.scenario import Scenario
from tests.simulation.task_lease import LEASE_SECONDS

from holdfast.adapters.lease.heartbeat import HEARTBEATS_PER_LEASE
from holdfast.core.lifecycle import LIVE

MOST_SERVERS = 3
_SKEWS_SECONDS = (0.0, 0.0, 0.7, -0.7, 3_600.0, -3_600.0)


class ManyServers(Scenario):
    kind = "several servers, seed"
    # A server that died, or whose registration it does not know of, may count as the oldest until its lease ends.
    leaderless_seconds = LEASE_SECONDS * (1 + 2 / HEARTBEATS_PER_LEASE)

    def __init__(self, seed: int, disk: Disk) -> None:
        super().__init__(seed, disk, Chance(seed, has_peers=True))
        random = self._random
        self._loss = random.choice([0.0, 0.1, 0.5, 1.0])
        self._world = World(
            disk=disk,
            chance=self._chance,
            ledger=self.ledger,
            ids=self._ids,
            bus=Bus(self._chance, self._loss),
            memory=self._memory,
        )
        self._processes: list[Process] = []
        self._started = 0
        self._endings: set[asyncio.Task[None]] = set()
        # How likely the next thing that happens is a fault of one server. Without any, every answer must be prompt,
        # whichever rings are lost.
        self._fault_rate = random.choice([0.0, 0.15, 0.35, 0.35])
        self._chance.has_pauses &= self._fault_rate > 0

    # -- the servers -------------------------------------------------------------------------

    @property
    def _process(self) -> Process:
        """Any of them: a load balancer sends requests anywhere."""
        return self._random.choice(self._processes)

    async def _start(self) -> None:
        for _ in range(self._random.choice([1, 2, 2, 3])):
            await self._start_one()

    async def _start_one(self) -> None:
        self._started += 1
        equipment = Equipment(
            name=f"server {self._started}",
            max_runs=self._random.choice([1, 2, 1000]),
            skew=timedelta(seconds=self._random.choice(_SKEWS_SECONDS)),
            is_alone=False,
        )
        self.note(f"START {equipment.name}, clock {equipment.skew}, {equipment.max_runs} runs")
        process = Process(self._world, equipment)
        await process.start()
        self._processes.append(process)

    async def _end_all(self) -> None:
        for process in list(self._processes):
            await process.crash()
        for ending in list(self._endings):
            await asyncio.wait([ending])

    def _end_one(self, end: Callable[[Process], Awaitable[None]], name: str) -> None:
        """Crash or stop a server; the others go on meanwhile."""
        process = self._choose_victim()
        self.note(f"ACT {name} {process.host.name}")
        self._processes.remove(process)
        self._chance.outages += 1

        async def work() -> None:
            await end(process)

        ending = asyncio.create_task(work())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    # -- what happens ------------------------------------------------------------------------

    async def _act(self) -> None:
        if self.ledger.live() and self._random.random() < self._fault_rate:
            await self._hurt_one()
        elif self._chance.has_outages and self._random.random() < 0.1:
            self.note(f"ACT {self._chance.begin_outage()}")
        else:
            self._ask()

    def _ask(self) -> None:
        """A client sends a request to any server. Most requests are messages: several threads are to be busy."""
        kind = self._random.random()
        held = [thread for thread, calls in self.ledger.held.items() if calls]
        if held and kind < 0.4:
            self._answer(self._random.choice(held))
        elif kind < (0.2 if self._fault_rate else 0.4) and self.ledger.live():
            self._cancel()
        elif kind < 0.23:
            self._hang_up()
        elif kind < 0.27:
            self._compact()
        else:
            self._send(self._random.choice(list(self._threads)))

    async def _wait(self) -> None:
        kind = self._random.random()
        if kind < 0.3:
            for _ in range(self._random.randrange(60)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._random.uniform(0.01, 0.5 if kind < 0.8 else 6))
        self._check()

    def _choose_victim(self) -> Process:
        """Mostly one that executes a run."""
        owners = {run.owner_id for run in self.ledger.runs.values() if run.status in LIVE}
        busy = [it for it in self._processes if it.host.server_id in owners]
        return self._random.choice(busy) if busy and self._random.random() < 0.8 else self._process

    async def _hurt_one(self) -> None:
        kind = self._random.choice(
            ["start", "crash", "stop", "pause", "pause", "cut", "cut", "deaf"]
        )
        needs_more = kind == "start" or len(self._processes) == 1
        match kind:
            case _ if needs_more and len(self._processes) < MOST_SERVERS:
                await self._start_one()
            case "crash":
                self._end_one(Process.crash, kind)
            case "stop":
                self._end_one(Process.stop, kind)
            case "deaf":
                self._process.deafen(self._chance.interruption_seconds())
            case _:
                self._interrupt(self._choose_victim(), kind)

    def _interrupt(self, process: Process, kind: str) -> None:
        """Pause a server or cut it off, often for longer than its lease."""
        seconds = self._chance.interruption_seconds()
        self._chance.outages += 1
        self.note(f"ACT {kind} {process.host.name} for {seconds:.2f} s")
        if kind == "pause":
            process.host.pause_after(self._random.randrange(30), seconds)
        else:
            process.cut_off(seconds)

    def _hang_up(self) -> None:
        if asked := [it for it in self._processes if it.clients]:
            self._random.choice(asked).hang_up(self._random)

    def _check(self) -> None:
        self._raise_violation()
        for process in self._processes:
            process.check()

    # -- how it ends -------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Every pause ends, and every server is connected again: early, or by itself."""
        if self._random.random() < 0.5:
            for process in self._processes:
                process.heal()
        else:
            await asyncio.sleep(LONGEST_INTERRUPTION_SECONDS)
        self._disk.finish_commits()
        await super()._settle()

    async def _restart(self) -> None:
        """The last fault: one server goes, and the others must do its work."""
        if len(self._processes) < MOST_SERVERS:
            await self._start_one()
        end = Process.crash if self._random.random() < 0.5 else Process.stop
        self._end_one(end, end.__name__)

    async def _finish(self) -> None:
        runs = list(self.ledger.runs.values())
        for process in self._processes:
            for run in self._random.sample(runs, min(len(runs), 2)):
                await process.host.create_task(process.follow(run))
        self._check_nothing_is_left()
        for process in list(self._processes):
            self._processes.remove(process)
            await process.stop()

    def _check_nothing_is_left(self) -> None:
        running = list(self.ledger.running)
        self.ledger.expect(not running, f"{running} are still running")
        is_empty = self._disk.read(lambda tx: tx.queue.is_empty())
        self.ledger.expect(is_empty, "runs wait in the queue, and none is live")
        live = self._disk.read(lambda tx: tx.runs.list_live())
        self.ledger.expect(not live, "{} are live", live)

    def _list_waiting(self) -> list[str]:
        clients = [client.get_name() for it in self._processes for client in it.clients]
        return clients + ["a server that stops"] * len(self._endings)
