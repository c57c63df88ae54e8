"""A store with many runs, written by the database itself: some kinds are common, some rare, one agent has half of all."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Engine, insert, text

from holdfast.adapters.store import tables
from holdfast.adapters.store.runs import RUN
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.models import ModelChoice
from holdfast.core.runs import Progress, Run, RunStatus, Usage

AGENTS: Final = 200
BUSY_AGENT: Final = "agent-00000000-0000-4000-8000-100000000000"
QUIET_AGENT: Final = "agent-00000000-0000-4000-8000-100000000007"
COMMON_TOOL: Final = "tool-00000000-0000-4000-8000-100000000001"
RARE_TOOL: Final = "tool-00000000-0000-4000-8000-100000000002"
# The first run was created then, and one each second after it.
FIRST_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)

_MODEL = ModelChoice(handle="openai/gpt-4o-mini", context_window=128_000)
# More than there will be runs, and prime: multiplied and divided by it, numbers are shuffled and stay different.
_PRIME = 10_000_019

_RUNS = f"""
INSERT INTO runs (id, organization_id, agent_id, thread_id, status, stop_reason, background, created_at,
    completed_at, total_duration_ns, num_steps, project_id, base_template_id, reserved_seq, metadata, body)
SELECT {{run_id}}, '{DEFAULT_ORGANIZATION_ID}', {{agent}}, {{agent}},
    CASE WHEN i <= :queued THEN 'queued' WHEN i IN (11, 13) THEN 'paused' WHEN i % 33 = 2 THEN 'failed'
        WHEN i % 50 = 3 THEN 'cancelled' ELSE 'completed' END,
    CASE WHEN i <= :queued THEN NULL WHEN i IN (11, 13) THEN 'requires_approval' WHEN i % 33 = 2 THEN 'llm_api_error'
        WHEN i % 50 = 3 THEN 'cancelled' WHEN i % 77 = 4 THEN 'max_steps' ELSE 'end_turn' END,
    i % 5 = 0, :first + i * 1000000, :first + i * 1000000 + 500000,
    CASE WHEN i > :queued THEN (i * 7919) % {_PRIME} * 1000 END,
    1 + i % 7,
    CASE WHEN i % 10 = 6 THEN 'project-' || CAST(i % 7 AS TEXT) END,
    CASE WHEN i % 100 = 8 THEN 'family' END,
    0, '{{{{}}}}', :body
FROM n
"""
_REQUESTS = "INSERT INTO run_requests (run_id, body) SELECT {run_id}, :asked FROM n"
_TOOLS = f"""
INSERT INTO run_tools (run_id, tool_id)
SELECT {{run_id}}, '{COMMON_TOOL}' FROM n WHERE i % 3 = 0
UNION ALL SELECT {{run_id}}, '{RARE_TOOL}' FROM n WHERE i % 5000 = 7
"""
_SHUFFLED = f"CAST(100000000000 + (i * 104729) % {_PRIME} AS TEXT)"
_RUN_ID = f"'run-00000000-0000-4000-8000-' || {_SHUFFLED}"
_AGENT = (
    "'agent-00000000-0000-4000-8000-' || "
    f"CAST(100000000000 + CASE WHEN i % 2 = 0 THEN 0 ELSE i % {AGENTS} END AS TEXT)"
)


def fill(engine: Engine, count: int, *, queued: int = 5) -> None:
    """Write so many runs; the database knows afterwards what it has. A server would take up those that are queued."""
    with engine.begin() as connection:
        _add_agents(connection)
        # Made afterwards, an index is made in one go.
        indexes = [*tables.runs.indexes, *tables.run_tools.indexes]
        for index in indexes:
            index.drop(connection)
        for statement in (_RUNS, _REQUESTS, _TOOLS):
            _write(connection, statement, count, queued)
        for index in indexes:
            index.create(connection)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))


def _write(connection: Connection, statement: str, count: int, queued: int) -> None:
    numbers = f"WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    head, _, rest = statement.format(run_id=_RUN_ID, agent=_AGENT).partition("SELECT")
    # Named in each statement alike, whether it takes all of them or not.
    given = {
        "first": int(FIRST_AT.timestamp()) * 1_000_000,
        "body": RUN.to_row(_sample())["body"],
        "asked": "{}",
        "queued": queued,
    }
    sql = f"{head} {numbers} SELECT{rest}"
    connection.execute(
        text(sql), {name: value for name, value in given.items() if f":{name}" in sql}
    )


def _add_agents(connection: Connection) -> None:
    ids = [f"agent-00000000-0000-4000-8000-{100_000_000_000 + n}" for n in range(AGENTS)]
    moment = {"created_at": FIRST_AT, "updated_at": FIRST_AT}
    owned = {"organization_id": DEFAULT_ORGANIZATION_ID, **moment, "body": "{}"}
    connection.execute(
        insert(tables.agents), [{"id": agent_id, "name": agent_id, **owned} for agent_id in ids]
    )
    connection.execute(
        insert(tables.threads),
        [{"id": agent_id, "agent_id": agent_id, **owned} for agent_id in ids],
    )


def _sample() -> Run:
    return Run(
        id="",
        organization_id="",
        agent_id="",
        thread_id="",
        status=RunStatus.COMPLETED,
        kind="send_message",
        created_at=FIRST_AT,
        progress=Progress(steps_taken=2, called=("shout",), input_stored=True),
        usage=Usage(1_234, 56),
        tools_used=(COMMON_TOOL,),
        started_at=FIRST_AT,
        last_event_seq=7,
    )
