"""The queue of runs on PostgreSQL: the jobs of Procrastinate, in a schema of their own, written by our transactions.

A job is ``todo`` while its run waits and ``doing`` while a server has it. Its lock is the thread, so Procrastinate gives
the runs of a thread to servers one at a time and in order. Its queueing lock is the run.

Procrastinate's own functions end or retry a job by its number alone: a server that was paused would end the job of its
successor. So here a job only changes in the transaction that changes its run, whose fence is checked there. Whether a
server is dead is decided by its lease, not by Procrastinate's heartbeat.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace
from sqlalchemy import Connection, Integer, text

from holdfast.adapters.store.columns import Instant, to_json
from holdfast.adapters.store.prepared_statement import PreparedStatement
from holdfast.adapters.store.run_claims import claim_run, find_claimed, list_owners, release_runs
from holdfast.core.runs import Run, RunStatus
from holdfast.core.servers import Claimant
from holdfast.ports.store import QueueDepth

# A new job that a server has from the start. Nothing may be before it in its thread: no job that waits, and none that a
# server has, of which Procrastinate's index allows one per lock.
_insert_claimed = PreparedStatement(
    text("""
    INSERT INTO holdfast_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, status, worker_id)
    SELECT 'runs', 'holdfast.run', :thread, :run, CAST(:args AS jsonb), 'doing', :worker
    WHERE NOT EXISTS (SELECT FROM holdfast_queue.procrastinate_jobs WHERE lock = :thread AND status = 'todo')
    ON CONFLICT (lock) WHERE status = 'doing' DO NOTHING
""")
)
_defer = text("""
    SELECT holdfast_queue.procrastinate_defer_jobs_v1(ARRAY[
        ROW('runs', 'holdfast.run', 0, :thread, :run, CAST(:args AS jsonb), NULL)
    ]::holdfast_queue.procrastinate_job_to_defer_v1[])
""")
_fetch = text(
    "SELECT args ->> 'run_id' FROM holdfast_queue.procrastinate_fetch_job_v2(ARRAY['runs']::varchar[], :worker)"
)
_lock = PreparedStatement(
    text(
        "SELECT id FROM holdfast_queue.procrastinate_jobs WHERE queueing_lock = :run AND status = 'todo' FOR UPDATE"
    )
)
# Two statements, because each has an index of its own.
_delete_claimed = PreparedStatement(
    text(
        "DELETE FROM holdfast_queue.procrastinate_jobs WHERE lock = :thread AND status = 'doing' AND queueing_lock = :run"
    )
)
_delete_waiting = PreparedStatement(
    text(
        "DELETE FROM holdfast_queue.procrastinate_jobs WHERE queueing_lock = :run AND status = 'todo'"
    )
)
# A run that was begun holds its thread, so it comes first: new jobs have the priority 0. The numbers of jobs do not say who
# is first, because a transaction with an earlier number may have been committed after the run began.
_release = text("""
    UPDATE holdfast_queue.procrastinate_jobs SET status = 'todo', worker_id = NULL, attempts = attempts + 1,
        priority = CASE WHEN queueing_lock = ANY(:begun) THEN 1 ELSE 0 END
    WHERE lock = ANY(:threads) AND status = 'doing' AND queueing_lock = ANY(:runs)
""")
_is_waiting = text(
    "SELECT 1 FROM holdfast_queue.procrastinate_jobs WHERE status = 'todo' AND queue_name = 'runs' LIMIT 1"
)
_measure = text("""
    SELECT count(*) AS waiting, min(runs.created_at) AS oldest_at FROM holdfast_queue.procrastinate_jobs AS jobs
    JOIN runs ON runs.id = jobs.queueing_lock
    WHERE jobs.status = 'todo' AND jobs.queue_name = 'runs'
""").columns(waiting=Integer, oldest_at=Instant)


class ProcrastinateQueue:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def enter(self, run: Run, claimant: Claimant | None) -> Run:
        """Add the job of a new run; return the run as it must be stored: claimed if its thread is free."""
        job = {"thread": run.thread_id, "run": run.id, "args": to_json({"run_id": run.id})}
        if claimant is not None:
            claimed = job | {"worker": claimant.worker_id}
            if _insert_claimed.execute(self._connection, claimed) > 0:
                return replace(run, owner_id=claimant.server_id, fence=run.fence + 1)
        self._connection.execute(_defer, job)
        return run

    def lock(self, run_id: str) -> None:
        """Lock the job of a run that waits. Whoever locks the run does so afterwards, in the order of a claim: otherwise
        the two would wait for each other until the database notices it."""
        _lock.execute(self._connection, {"run": run_id})

    def leave(self, run: Run) -> None:
        """Delete the job of a run that has ended. Its fence was checked, so the job is that of this claim."""
        job = {"thread": run.thread_id, "run": run.id}
        statement = _delete_waiting if run.owner_id is None else _delete_claimed
        statement.execute(self._connection, job)

    def claim_next(self, claimant: Claimant) -> str | None:
        worker = {"worker": claimant.worker_id}
        run_id: str | None = self._connection.execute(_fetch, worker).scalar()
        if run_id is None:
            return None
        claim_run(self._connection, run_id, claimant.server_id)
        return run_id

    def is_empty(self) -> bool:
        return self._connection.execute(_is_waiting).first() is None

    def measure(self) -> QueueDepth:
        waiting, oldest_at = self._connection.execute(_measure).one()
        return QueueDepth(waiting, oldest_at)

    def find_holder(self, thread_id: str) -> str | None:
        return find_claimed(self._connection, thread_id)

    def list_owners(self) -> Sequence[str]:
        return list_owners(self._connection)

    def release(self, server_ids: Collection[str], keep: Collection[str] = ()) -> int:
        released = release_runs(self._connection, server_ids, keep)
        if released:
            jobs = {
                "runs": [row.id for row in released],
                "threads": [row.thread_id for row in released],
                "begun": [row.id for row in released if row.status != RunStatus.QUEUED],
            }
            self._connection.execute(_release, jobs)
        return len(released)
