"""Servers and runs in the queue of a store, and what must hold of them at any time."""

from collections.abc import Sequence

from sqlalchemy import text
from tests.support.values import Make, moment

from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.transaction import SqlTransaction
from holdfast.core.lifecycle import Signal
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claim, Claimant, Role, Server, ServerProcess
from holdfast.ports.store import Store, Transaction

LEASE_SECONDS = 600.0

_JOBS = text(
    "SELECT queueing_lock, status, lock FROM holdfast_queue.procrastinate_jobs ORDER BY id"
)


def describe_server(server_id: str, *, process: ServerProcess | None = None) -> Server:
    """A server before it is registered."""
    return Server(
        id=server_id,
        host="host",
        process=process or ServerProcess(pid=1),
        version="1.0",
        role=Role.ALL,
        max_runs=10,
        started_at=moment(0),
        heartbeat_at=moment(0),
    )


async def register(
    store: Store, server_id: str, lease_seconds: float | None = LEASE_SECONDS
) -> Claimant:
    """Register a server whose lease does not expire during a test, unless told otherwise."""
    server = await store.write(
        lambda tx: tx.servers.register(describe_server(server_id), lease_seconds)
    )
    return Claimant(server.id, server.worker_id)


async def add_run(store: Store, run: Run, claimant: Claimant | None = None) -> Run:
    return await store.write(lambda tx: tx.runs.add(run, claimant))


async def claim_next(store: Store, claimant: Claimant) -> Claim | None:
    return await store.write(lambda tx: tx.queue.claim_next(claimant))


async def claim_id(store: Store, claimant: Claimant) -> str | None:
    """Claim the next run; return its id."""
    claim = await claim_next(store, claimant)
    return None if claim is None else claim.run_id


async def find_run(store: Store, run_id: str) -> Run:
    run = await store.read(lambda tx: tx.runs.find(run_id))
    assert run is not None
    return run


async def signal(store: Store, run_id: str, *signals: Signal) -> Run:
    """Let it happen to the run as it is stored."""

    def work(tx: Transaction) -> Run:
        run = tx.runs.find(run_id)
        assert run is not None
        for item in signals:
            run = tx.runs.transition(run, item)
        return run

    return await store.write(work)


_SIGNALS_TO_END = {
    RunStatus.QUEUED: (Signal.CLAIM, Signal.COMPLETE),
    RunStatus.RUNNING: (Signal.COMPLETE,),
    RunStatus.CANCELLING: (Signal.CONFIRM_CANCEL,),
}


async def end_run(store: Store, run_id: str) -> Run:
    """Take the run to its end, as its worker does."""
    run = await find_run(store, run_id)
    return await signal(store, run_id, *_SIGNALS_TO_END[run.status])


async def add_threads(store: Store, make: Make, count: int) -> Sequence[str]:
    """Add the default threads of so many agents; return their ids, which are also those of the agents."""
    agents = [make.agent() for _ in range(count)]

    def work(tx: Transaction) -> None:
        for agent in agents:
            tx.agents.add(agent)
            tx.threads.add(make.thread(agent))

    await store.write(work)
    return [agent.id for agent in agents]


async def check_jobs(store: SqlStore) -> None:
    """On PostgreSQL: each live run has one job, claimed if the run is, and there are no other jobs."""
    if store._clock is not None:
        return

    def load(tx: Transaction) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
        assert isinstance(tx, SqlTransaction)
        jobs = [(row[0], str(row[1]), row[2]) for row in tx._connection.execute(_JOBS)]
        runs = [
            (run.id, "todo" if run.owner_id is None else "doing", run.thread_id)
            for run in tx.runs.list_live()
        ]
        return sorted(jobs), sorted(runs)

    jobs, runs = await store.read(load)
    assert jobs == runs
