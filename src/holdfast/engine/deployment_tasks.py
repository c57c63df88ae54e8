"""The periodic work of a deployment, which one of its servers does: the leader."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

from holdfast.core.servers import LEADER_POLL_SECONDS, TAKEOVER_SECONDS
from holdfast.engine.store_writes import finish
from holdfast.errors import BackendError
from holdfast.ports.bell import RUNS
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

log = logging.getLogger(__name__)

# How long a dead server is still listed.
KEEP_DEAD: Final = timedelta(hours=1)

Task = Callable[[], Awaitable[None]]


class DeploymentTasks:
    """Runs the tasks while this server is the leader. A leader that was paused may overlap with its successor for a moment:
    each task claims what it works on in the store."""

    def __init__(self, services: Services, tasks: Sequence[Task]) -> None:
        self._services = services
        self._tasks = tasks

    async def run(self) -> None:
        while True:
            await self._wait_until(is_leader=True)
            log.info("leader.began")
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(_run(task)) for task in self._tasks]
                await self._wait_until(is_leader=False)
                for task in running:
                    task.cancel()
            log.info("leader.ended")

    async def _wait_until(self, *, is_leader: bool) -> None:
        # Polled, since time alone can end a lease.
        while self._services.lease.is_leader is not is_leader:  # noqa: ASYNC110 - see above
            await asyncio.sleep(LEADER_POLL_SECONDS)


async def _run(task: Task) -> None:
    await task()


class Takeover:
    """Puts the runs of servers whose lease has expired back into the queue, for any server to go on with."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self) -> None:
        if self._services.lease.is_exclusive:
            return
        while True:
            try:
                # To its end, even if another server becomes the leader meanwhile: its error must be heard.
                count = await finish(self._services.store.write(_release_expired))
            except BackendError:
                log.exception("store.unreachable", extra={"while": "looking for dead servers"})
            else:
                if count:
                    log.warning("runs.taken_over", extra={"count": count})
                    self._services.bell.ring(RUNS)
            await asyncio.sleep(TAKEOVER_SECONDS)


def _release_expired(tx: Transaction) -> int:
    tx.servers.delete_dead(tx.servers.now() - KEEP_DEAD)
    return tx.queue.release_expired()
