"""A worker finds runs that others have stored as soon as the bell of the queue rings, not when it looks there anyway."""

import pytest
from tests.support.rig import Rig

from holdfast.adapters.dispatch import queue
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.runs import RunStatus
from holdfast.ports.bell import RUNS
from holdfast.ports.store import QueueDepth


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "POLL_SECONDS", 3600.0)


async def test_a_ring_of_another_server_makes_the_worker_look_into_the_queue(
    rig: Rig, store: SqliteStore
) -> None:
    agent = await rig.make_agent()
    rig.model.says("One")
    rig.model.says("Two")
    async with rig.run_worker():
        # The worker has seen an empty queue.
        await rig.say(agent)
        run = await Rig(store).submit(agent)
        assert run.owner_id is None
        rig.services.bell.ring(RUNS)
        assert (await rig.wait_for_end(run)).status is RunStatus.COMPLETED
    assert await rig.read(lambda tx: tx.queue.measure()) == QueueDepth()
