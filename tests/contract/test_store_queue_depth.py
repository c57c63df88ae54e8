"""The depth of the queue, on each database: how many runs wait, and since when."""

from datetime import timedelta

from tests.support.servers import make_server
from tests.support.values import Make, moment

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.runs import RunStatus
from holdfast.core.servers import Claimant
from holdfast.ports.store import QueueDepth, Transaction

make = Make()


async def test_runs_that_wait_are_counted_and_the_oldest_is_known(any_store: SqlStore) -> None:
    agents = [make.agent(), make.agent()]
    threads = [make.thread(agent) for agent in agents]
    runs = [
        make.run(thread, status=RunStatus.QUEUED, created_at=moment(number))
        for number, thread in enumerate([threads[0], threads[0], threads[1]], start=5)
    ]

    def fill(tx: Transaction) -> QueueDepth:
        for agent, thread in zip(agents, threads, strict=True):
            tx.agents.add(agent)
            tx.threads.add(thread)
        empty = tx.queue.measure()
        for run in runs:
            tx.runs.add(run)
        return empty

    def claim(tx: Transaction) -> str | None:
        server = tx.servers.register(make_server(), 60)
        claim = tx.queue.claim_next(Claimant(server.id, server.worker_id))
        return None if claim is None else claim.run_id

    assert await any_store.write(fill) == QueueDepth(0, None)
    assert await any_store.read(lambda tx: tx.queue.measure()) == QueueDepth(3, moment(5))
    assert await any_store.write(claim) == runs[0].id
    depth = await any_store.read(lambda tx: tx.queue.measure())
    assert depth == QueueDepth(2, moment(6))
    assert depth.oldest_seconds(moment(6) + timedelta(seconds=9)) == 9
    assert depth.oldest_seconds(moment(5)) == 0
