"""Which index each list of runs uses: on PostgreSQL with enough rows to plan as with a million, on SQLite by its rules,
which do not depend on the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bench.many_runs import BUSY_AGENT, COMMON_TOOL, FIRST_AT, QUIET_AGENT, RARE_TOOL, fill
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from tests.support.sqlite_work import count_instructions
from tests.support.values import Make

from holdfast.adapters.store import tables
from holdfast.adapters.store.index_hints import prefer_indexes
from holdfast.adapters.store.run_list import ids_on_page
from holdfast.adapters.store.runs import SqlRuns
from holdfast.adapters.store.steps import SqlSteps
from holdfast.adapters.store.table_queue import TableQueue
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import LIVE, Signal
from holdfast.core.paging import Page
from holdfast.core.runs import Bound, Comparison, RunQuery, RunStatus, StopReason
from holdfast.core.steps import StepQuery

ORG = DEFAULT_ORGANIZATION_ID
EQ, GT, GTE = Comparison.EQ, Comparison.GT, Comparison.GTE

NEWEST = Page(limit=100)
BY_DURATION = Page(limit=100, order_by="duration")
COMPLETED = (RunStatus.COMPLETED, RunStatus.PAUSED, RunStatus.ANSWERED)
NEVER = Bound(EQ, 99)

# The query, and the index that SQLite uses. PostgreSQL may use a better one.
QUESTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "all": ({}, "ix_runs_page"),
    "further on": ({"page": Page(limit=100, after="CURSOR")}, "ix_runs_page"),
    "back": ({"page": Page(limit=100, before="CURSOR")}, "ix_runs_page"),
    "an agent": ({"agent_ids": (QUIET_AGENT,)}, "ix_runs_agent"),
    "a busy agent, nothing fits": (
        {"agent_ids": (BUSY_AGENT,), "step_count": NEVER},
        "ix_runs_agent",
    ),
    "two agents": ({"agent_ids": (BUSY_AGENT, QUIET_AGENT)}, "ix_runs_page"),
    "a thread": ({"thread_id": QUIET_AGENT}, "ix_runs_thread"),
    "a thread's failures": (
        {"thread_id": QUIET_AGENT, "statuses": (RunStatus.FAILED,)},
        "ix_runs_thread",
    ),
    "a busy thread, nothing fits": (
        {"thread_id": BUSY_AGENT, "agent_ids": (BUSY_AGENT,), "step_count": NEVER},
        "ix_runs_thread",
    ),
    "a busy thread's long ones": (
        {"thread_id": BUSY_AGENT, "duration": Bound(GT, 9_000_000_000)},
        "ix_runs_thread",
    ),
    "failed": ({"statuses": (RunStatus.FAILED,)}, "ix_runs_went_wrong"),
    "live": ({"statuses": tuple(sorted(LIVE))}, "ix_runs_live"),
    "an agent's live": (
        {"statuses": tuple(sorted(LIVE)), "agent_ids": (BUSY_AGENT,)},
        "ix_runs_live",
    ),
    "an agent's paused": (
        {"statuses": (RunStatus.PAUSED,), "agent_ids": (BUSY_AGENT,)},
        # Both indexes contain only waiting runs, and SQLite has no reason to prefer one.
        "ix_runs_asked or uq_runs_paused",
    ),
    "a thread's paused": (
        {"statuses": (RunStatus.PAUSED,), "thread_id": BUSY_AGENT},
        "ix_runs_asked or uq_runs_paused",
    ),
    "completed": ({"statuses": COMPLETED}, "ix_runs_page"),
    "completed in the background with a rare reason": (
        {"statuses": COMPLETED, "background": True, "stop_reason": StopReason.MAX_STEPS},
        "ix_runs_page",
    ),
    "a project": ({"project_id": "project-3"}, "ix_runs_page"),
    "a family": ({"template_family": "family"}, "ix_runs_page"),
    "nothing fits": ({"background": True, "step_count": NEVER}, "ix_runs_page"),
    "a day": (
        {"start_date": FIRST_AT, "end_date": FIRST_AT + timedelta(seconds=60)},
        "ix_runs_page",
    ),
    "long ones, newest first": ({"duration": Bound(GT, 9_000_000_000)}, "ix_runs_page"),
    "longest first": ({"page": BY_DURATION}, "ix_runs_duration"),
    "longest first of an agent": (
        {"page": BY_DURATION, "agent_ids": (BUSY_AGENT,), "start_date": FIRST_AT},
        "ix_runs_duration",
    ),
    "longest first of a thread": (
        {"page": BY_DURATION, "thread_id": BUSY_AGENT, "agent_ids": (BUSY_AGENT,)},
        "ix_runs_thread_duration",
    ),
    "longest first of a thread, nothing fits": (
        {"page": BY_DURATION, "thread_id": BUSY_AGENT, "step_count": NEVER},
        "ix_runs_thread_duration",
    ),
    "longest first, further on": (
        {"page": Page(limit=100, order_by="duration", after="CURSOR")},
        "ix_runs_duration",
    ),
    "a rare tool": ({"tools_used": (RARE_TOOL,)}, "sqlite_autoindex_runs_1"),
    "a common tool": ({"tools_used": (COMMON_TOOL,)}, "ix_runs_page"),
    "a common tool of an agent": (
        {"tools_used": (COMMON_TOOL,), "agent_ids": (BUSY_AGENT,)},
        "ix_runs_agent",
    ),
    "a percentile": ({"duration_percentile": 99}, "ix_runs_page"),
    "a percentile of an agent": (
        {"duration_percentile": 50, "agent_ids": (QUIET_AGENT,)},
        "ix_runs_agent",
    ),
    "everything": (
        {
            "agent_ids": (BUSY_AGENT,),
            "statuses": COMPLETED,
            "stop_reason": StopReason.END_TURN,
            "background": True,
            "project_id": "project-3",
            "template_family": "family",
            "start_date": FIRST_AT,
            "step_count": Bound(GTE, 1),
            "tools_used": (COMMON_TOOL,),
            "duration": Bound(GT, 5),
            "duration_percentile": 10,
        },
        "ix_runs_agent",
    ),
}
MANY = 20_000
# At most this many rows may be sorted: the runs of a rare tool, or of one agent.
FEW = MANY // 20


def collect_statements(engine: Engine, name: str, cursor: str) -> Iterator[tuple[str, Any]]:
    """The queries that find the page, without those that load its rows by id."""
    fields, _ = QUESTIONS[name]
    query = RunQuery(**{"page": NEWEST, **fields})
    page = query.page
    page = replace(page, after=page.after and cursor, before=page.before and cursor)
    with record_statements(engine) as statements, engine.connect() as connection:
        ids_on_page(connection, ORG, replace(query, page=page))
    yield from (statement for statement in statements if statement[0].startswith("SELECT"))


@contextmanager
def record_statements(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements sent to the database meanwhile."""
    statements: list[tuple[str, Any]] = []

    def record(_c: Connection, _cursor: object, statement: str, given: Any, *_: object) -> None:
        statements.append((statement, given))

    event.listen(engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", record)


@contextmanager
def filled_database(url: str, count: int) -> Iterator[tuple[Engine, str]]:
    """A database with many runs, and the id of one in the middle."""
    engine = create_engine(url)
    tables.metadata.create_all(engine)
    fill(engine, count)
    with engine.connect() as connection:
        middle = text(f"SELECT id FROM runs ORDER BY created_at LIMIT 1 OFFSET {count // 2}")
        cursor = str(connection.execute(middle).scalar_one())
    yield engine, cursor
    engine.dispose()


@pytest.mark.slow
def test_sqlite_scans_one_index_in_the_order_of_the_list(tmp_path: Path) -> None:
    """Only a few runs are sorted, and the index contains all columns of the filter."""
    with filled_database(f"sqlite:///{tmp_path}/many.db", 4_000) as (engine, cursor):
        for name, (_, index) in QUESTIONS.items():
            statements = collect_statements(engine, name, cursor)
            plans = [_sqlite_plan(engine, *statement) for statement in statements]
            about_runs = [line for plan in plans for line in plan if " runs" in line]
            assert all(" INDEX " in line for line in about_runs), name
            (how,) = [line for line in plans[-1] if " runs" in line]
            assert any(f"INDEX {one}" in how for one in index.split(" or ")), (name, how)
            assert "COVERING" in how or index in NOT_COVERING, name
            assert name in SORTED or not any("FOR ORDER BY" in line for line in plans[-1]), name


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "ix_steps_page"),
        ({"project_id": "p", "feedback": "positive", "model": "gpt-x"}, "ix_steps_page"),
        ({"has_feedback": True, "start_date": FIRST_AT}, "ix_steps_page"),
        ({"agent_id": QUIET_AGENT, "model": "gpt-x"}, "ix_steps_agent"),
        ({"run_id": "run-1"}, "ix_steps_run_id_created_at_id"),
    ],
)
def test_steps_are_found_by_index_too(asked: dict[str, Any], index: str) -> None:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with record_statements(engine) as statements, engine.connect() as connection:
        SqlSteps(connection).list(ORG, StepQuery(page=NEWEST, **asked))
    plan = _sqlite_plan(engine, *statements[0])
    assert f"INDEX {index} " in plan[0]
    assert not any("ORDER BY" in line for line in plan)


def test_taking_a_thread_costs_the_same_however_many_runs_it_had(make: Make) -> None:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    thread = make.thread(make.agent())
    with engine.connect() as connection:
        runs = SqlRuns(connection, TableQueue(connection))

        def work_of_a_claim() -> int:
            run = make.run(thread)
            runs.add(run)
            with count_instructions(connection) as done:
                claimed = runs.transition(run, Signal.CLAIM)
            runs.transition(claimed, Signal.COMPLETE)
            return len(done)

        first = work_of_a_claim()
        for _ in range(100):
            last = work_of_a_claim()
    assert last <= first + 10


@pytest.mark.parametrize("since", [{}, {"start_date": FIRST_AT}], ids=["ever", "since"])
def test_an_agents_costs_are_read_from_one_index(since: dict[str, Any]) -> None:
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with record_statements(engine) as statements, engine.connect() as connection:
        SqlSteps(connection).sum_costs(ORG, StepQuery(page=NEWEST, agent_id=QUIET_AGENT, **since))
    (how,) = _sqlite_plan(engine, *statements[0])
    assert "COVERING INDEX ix_steps_agent " in how


# The index has few entries there, and each is checked.
NOT_COVERING = {
    "sqlite_autoindex_runs_1",
    "ix_runs_live",
    "uq_runs_paused",
    "ix_runs_asked or uq_runs_paused",
}
SORTED = {"a rare tool", "an agent's paused", "a thread's paused"}


def _sqlite_plan(engine: Engine, statement: str, given: Any) -> list[str]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
        return [str(row[3]) for row in rows]


@pytest.mark.slow
def test_postgresql_never_reads_or_sorts_all_runs(postgres_url: str) -> None:
    url = make_url(postgres_url).set(drivername="postgresql+psycopg")
    with filled_database(url.render_as_string(hide_password=False), MANY) as (engine, cursor):
        for name in QUESTIONS:
            for statement, given in collect_statements(engine, name, cursor):
                for node in _postgres_plan(engine, statement, given):
                    reads_all = node["Node Type"] == "Seq Scan" and node["Relation Name"] == "runs"
                    sorts_many = node["Node Type"] == "Sort" and node["Plan Rows"] > FEW
                    assert not reads_all, (name, node)
                    assert not sorts_many, (name, node)


def _postgres_plan(engine: Engine, statement: str, given: Any) -> Iterator[dict[str, Any]]:
    with engine.connect() as connection:
        prefer_indexes(connection)
        explained = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", given)
        yield from _nodes(explained.scalar_one()[0]["Plan"])


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
