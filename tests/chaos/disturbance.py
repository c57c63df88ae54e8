"""What happens to the servers of a chaos: one after the other is killed, paused or stopped, and comes back."""

import asyncio
import random
from collections import Counter
from itertools import takewhile
from typing import Final

from tests.support.cluster import LEASE_SECONDS, Cluster, ClusterServer

# What a server logs when something went wrong that no weather explains.
_BAD_EVENTS: Final = (
    "run.interrupted",
    "run.end_failed",
    "run.retries_exhausted",
    "run.stuck",
    "request.failed",
)


class Disturbance:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.bad_lines: list[str] = []
        self._cluster = cluster
        self._chance = chance
        self._disturbed: set[ClusterServer] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds_between: float, stop: asyncio.Event) -> None:
        """Disturb a server every so often until ``stop``; then all are well again."""
        while not stop.is_set():
            well = [one for one in self._cluster.servers if one not in self._disturbed]
            # Somebody must be there to go on.
            if len(well) > 1:
                self._begin(self._chance.choice(well))
            await asyncio.sleep(seconds_between)
        await asyncio.gather(*self._tasks)
        for server in self._cluster.servers:
            self._look_at_log(server)

    def _begin(self, server: ClusterServer) -> None:
        self._disturbed.add(server)
        how = self._chance.choice((self._kill, self._pause, self._stop))
        task = asyncio.create_task(how(server))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _kill(self, server: ClusterServer) -> None:
        self.counts["kills"] += 1
        await asyncio.to_thread(server.kill)
        await self._restart(server)

    async def _pause(self, server: ClusterServer) -> None:
        self.counts["pauses"] += 1
        server.pause()
        await asyncio.sleep(float(LEASE_SECONDS) + 1)
        server.resume()
        self._disturbed.discard(server)

    async def _stop(self, server: ClusterServer) -> None:
        self.counts["stops"] += 1
        code = await asyncio.to_thread(server.stop)
        if code != 0:
            self.bad_lines.append(f"a server that was told to stop ended with {code}")
        await self._restart(server)

    async def _restart(self, server: ClusterServer) -> None:
        self._look_at_log(server)
        await asyncio.to_thread(self._cluster.restart, server)
        self._disturbed.discard(server)

    def _look_at_log(self, server: ClusterServer) -> None:
        """Keep the bad events, each with the last line of its traceback."""
        lines = server.process.log.splitlines()
        for number, line in enumerate(lines):
            if any(bad in line for bad in _BAD_EVENTS):
                rest = takewhile(lambda one: not _is_event(one), lines[number + 1 :])
                event = " ".join([line, *list(rest)[-1:]])
                self.bad_lines.append(event)


def _is_event(line: str) -> bool:
    """Whether the line begins with a time; those of a traceback do not."""
    return line[:2] == "20"
