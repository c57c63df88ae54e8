"""What a database of servers says, read beside them: who has which run, and whether anything is wrong once all is quiet."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import NullPool, Row, create_engine, make_url, select, text
from tests.support.client_objects import eventually

from holdfast.adapters.store import tables
from holdfast.adapters.store.messages import MESSAGE
from holdfast.core.messages import Message, Role

_LIVE = "('queued', 'running', 'cancelling')"
_JOBS = "holdfast_queue.procrastinate_jobs"
_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
_IS_ALIVE = f"(servers.lease_ends_at IS NULL OR servers.lease_ends_at > {_NOW})"

# By what is wrong: a query for the ids of what is.
_WRONG = {
    "a run has not ended": f"SELECT id FROM runs WHERE status IN {_LIVE}",
    "a job has no live run": f"""
        SELECT jobs.queueing_lock FROM {_JOBS} AS jobs LEFT JOIN runs ON runs.id = jobs.queueing_lock
        WHERE runs.id IS NULL OR runs.status NOT IN {_LIVE}""",
    "a live run has no job": f"""
        SELECT runs.id FROM runs LEFT JOIN {_JOBS} AS jobs ON runs.id = jobs.queueing_lock
        WHERE jobs.id IS NULL AND runs.status IN {_LIVE}""",
    "a live run has a dead owner": f"""
        SELECT runs.id FROM runs WHERE status IN {_LIVE} AND owner_id IS NOT NULL
        AND NOT EXISTS (SELECT FROM servers WHERE servers.id = runs.owner_id AND {_IS_ALIVE})""",
    "a step of an ended run is pending": f"""
        SELECT steps.id FROM steps JOIN runs ON runs.id = steps.run_id
        WHERE steps.status = 'pending' AND runs.status NOT IN {_LIVE}""",
    "a call is open and nobody waits": f"""
        SELECT call_id FROM calls WHERE NOT EXISTS (
            SELECT FROM runs WHERE runs.thread_id = calls.thread_id
            AND (runs.status = 'paused' OR runs.status IN {_LIVE}))""",
    "two rows of events share a number": """
        SELECT one.run_id FROM events AS one JOIN events AS other
        ON one.run_id = other.run_id AND one.seq < other.seq AND one.last_seq >= other.seq""",
}


class DatabaseFacts:
    def __init__(self, url: str) -> None:
        # Without a pool: between two questions it takes no connection from anybody.
        self._engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool
        )

    def fetch(self, query: str, **values: Any) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(text(query), values).all()

    def find_owner_pid(self, run_id: str) -> int | None:
        """The process of the server that has claimed the run."""
        query = "SELECT pid FROM runs JOIN servers ON servers.id = owner_id WHERE runs.id = :run"
        found = self.fetch(query, run=run_id)
        return found[0].pid if found else None

    def find_status(self, run_id: str) -> str | None:
        found = self.fetch("SELECT status FROM runs WHERE id = :run", run=run_id)
        return found[0].status if found else None

    def list_runs(self) -> Sequence[Row[Any]]:
        return self.fetch(
            "SELECT id, agent_id, thread_id, status, stop_reason, fence, body FROM runs ORDER BY created_at"
        )

    def list_alive_pids(self) -> set[int]:
        return {row.pid for row in self.fetch(f"SELECT pid FROM servers WHERE {_IS_ALIVE}")}

    def wait_until_quiet(self) -> None:
        """Wait until every run has ended."""
        query = _WRONG["a run has not ended"]
        eventually(lambda: self.fetch(query), lambda live: not live)

    def find_violations(self) -> list[str]:
        """What is wrong in a database in which everything has ended."""
        found = [f"{what}: {row[0]}" for what, query in _WRONG.items() for row in self.fetch(query)]
        return [*found, *self._find_bad_histories()]

    def _find_bad_histories(self) -> Iterator[str]:
        context, messages = tables.context, tables.messages
        query = (
            select(context.c.thread_id, *MESSAGE.columns)
            .join(messages, messages.c.id == context.c.message_id)
            .order_by(context.c.thread_id, context.c.place)
        )
        paused = {
            row[0] for row in self.fetch("SELECT thread_id FROM runs WHERE status = 'paused'")
        }
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        for thread_id, group in groupby(rows, key=lambda row: str(row[0])):
            history = [MESSAGE.from_row(row[1:]) for row in group]
            if problem := find_fault(history, may_wait=thread_id in paused):
                yield f"the history of {thread_id}: {problem}"


def find_fault(history: Sequence[Message], *, may_wait: bool) -> str | None:
    """Why a provider would refuse the history; None if it would not. The last calls may wait for a person."""
    waiting: set[str] = set()
    for row in history:
        if row.role in (Role.USER, Role.SYSTEM) and waiting:
            return f"{waiting} unanswered before a message of the {row.role}"
        waiting |= {call.id for call in row.tool_calls}
        for item in row.tool_returns:
            if item.call_id not in waiting:
                return f"{item.call_id} has a result and no open call"
            waiting.discard(item.call_id)
    texts = [row.text for row in history if row.role is Role.USER and not row.hidden]
    if len(texts) != len(set(texts)):
        return f"a message is there twice: {texts}"
    return f"{waiting} unanswered" if waiting and not may_wait else None
