"""What ties runs to their jobs in the queue on PostgreSQL: a trigger, and the jobs of runs that are older than the queue.

A job has the run's id as ``queueing_lock`` and its thread's as ``lock``. How jobs are claimed and end is not here.
"""

from typing import Final

from sqlalchemy import Connection

# Whatever deletes a live run deletes its job: agents and threads are deleted with all that refers to them. Two statements,
# since there are two partial indexes: of jobs that wait by ``queueing_lock``, of claimed ones by ``lock``.
_DELETE_JOB: Final = """
CREATE FUNCTION holdfast_queue.delete_job_of_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = holdfast_queue, pg_temp AS $$
BEGIN
    DELETE FROM procrastinate_jobs
    WHERE queueing_lock = OLD.id AND status = 'todo';
    DELETE FROM procrastinate_jobs
    WHERE lock = OLD.thread_id AND status = 'doing' AND queueing_lock = OLD.id;
    RETURN NULL;
END;
$$
"""

_TRIGGER: Final = """
CREATE TRIGGER delete_job AFTER DELETE ON runs
FOR EACH ROW WHEN (OLD.status IN ('queued', 'running', 'cancelling'))
EXECUTE FUNCTION holdfast_queue.delete_job_of_run()
"""

# A job's number is its place in the queue, so they are made in the order of the runs; a run that was begun holds its
# thread and comes first. Whoever executed it has stopped: all jobs wait for a worker.
_ADD_JOBS: Final = """
INSERT INTO holdfast_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
SELECT 'runs', 'holdfast.run', thread_id, id, jsonb_build_object('run_id', id)
FROM runs WHERE status IN ('queued', 'running', 'cancelling')
ORDER BY status = 'queued', created_at, id
"""

# Procrastinate looks for earlier jobs of the same lock with each claim, and we with each new run.
_INDEX: Final = """
CREATE INDEX holdfast_jobs_waiting ON holdfast_queue.procrastinate_jobs (lock, id) WHERE status = 'todo'
"""


def create(connection: Connection) -> None:
    """Create the trigger, and the job of each live run."""
    for statement in (_DELETE_JOB, _TRIGGER, _ADD_JOBS, _INDEX):
        connection.exec_driver_sql(statement)
