"""Filters of the list of runs, each alone and combined. Which index they use is in ``test_store_run_plans``."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.values import Make, moment

from holdfast.adapters.store.runs import SqlRuns
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.table_queue import TableQueue
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.lifecycle import LIVE
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Bound, Comparison, Run, RunQuery, RunStatus, StopReason
from holdfast.core.threads import Thread
from holdfast.errors import NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
EQ, GT, GTE, LT, LTE = (
    Comparison.EQ,
    Comparison.GT,
    Comparison.GTE,
    Comparison.LT,
    Comparison.LTE,
)
ALL = Page(limit=50, order=Order.ASC)
LONGEST_FIRST = Page(limit=50, order_by="duration")
TOOLS = ("tool-a", "tool-b", "tool-c")
ENDED = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.ANSWERED)


async def add_threads(store: Store, make: Make, count: int) -> list[Thread]:
    agents = [make.agent() for _ in range(count)]
    threads = [make.thread(agent) for agent in agents]

    def work(tx: Transaction) -> None:
        for agent, thread in zip(agents, threads, strict=True):
            tx.agents.add(agent)
            tx.threads.add(thread)

    await store.write(work)
    return threads


async def add_runs(store: Store, *runs: Run) -> None:
    def work(tx: Transaction) -> None:
        for run in runs:
            tx.runs.add(run)

    await store.write(work)


async def list_runs(store: Store, **query: Any) -> list[Run]:
    asked = RunQuery(**{"page": ALL, **query})
    return list(await store.read(lambda tx: tx.runs.list(ORG, asked)))


@pytest.mark.wire(120)
async def test_runs_are_found_by_each_condition(any_store: Store, make: Make) -> None:
    thread, other = await add_threads(any_store, make, 2)
    one = make.run(
        thread,
        status=RunStatus.COMPLETED,
        stop_reason=StopReason.END_TURN,
        project_id="p",
        base_template_id="family",
        num_steps=2,
        tools_used=("tool-a", "tool-b"),
        total_duration_ns=5,
    )
    two = make.run(
        other,
        status=RunStatus.FAILED,
        stop_reason=StopReason.ERROR,
        background=True,
        num_steps=4,
        tools_used=("tool-b",),
        total_duration_ns=9,
    )
    foreign = make.run(thread, organization_id="org-x", project_id="p")
    await add_runs(any_store, one, two, foreign)

    async def list_ids(**query: Any) -> list[Run]:
        return await list_runs(any_store, **query)

    assert await list_ids() == [one, two]
    assert await list_ids(run_id=two.id) == [two]
    assert await list_ids(run_id=foreign.id) == []
    assert await list_ids(agent_ids=(thread.agent_id,)) == [one]
    assert await list_ids(agent_ids=(thread.agent_id, other.agent_id)) == [one, two]
    assert await list_ids(thread_id=other.id) == [two]
    assert await list_ids(statuses=(RunStatus.FAILED, RunStatus.QUEUED)) == [two]
    assert await list_ids(statuses=(RunStatus.FAILED, RunStatus.CANCELLED)) == [two]
    assert await list_ids(statuses=tuple(LIVE)) == []
    assert await list_ids(stop_reason=StopReason.END_TURN) == [one]
    assert await list_ids(background=True) == [two]
    assert await list_ids(background=False) == [one]
    assert await list_ids(project_id="p") == [one]
    assert await list_ids(template_family="family") == [one]
    assert await list_ids(template_family="another") == []
    assert await list_ids(start_date=one.created_at, end_date=one.created_at) == [one]
    assert await list_ids(start_date=two.created_at) == [two]
    assert await list_ids(step_count=Bound(EQ, 4)) == [two]
    assert await list_ids(step_count=Bound(GTE, 2)) == [one, two]
    assert await list_ids(step_count=Bound(LTE, 2)) == [one]
    assert await list_ids(tools_used=("tool-a", "tool-c")) == [one]
    assert await list_ids(tools_used=("tool-a", "tool-b")) == [one, two]
    assert await list_ids(tools_used=("tool-c",)) == []
    assert await list_ids(duration=Bound(GT, 5)) == [two]
    assert await list_ids(duration=Bound(LT, 9)) == [one]
    assert await list_ids(duration=Bound(EQ, 9)) == [two]
    assert await list_ids(duration_percentile=0) == [one, two]
    assert await list_ids(duration_percentile=51) == [two]


@pytest.mark.wire(121)
async def test_a_list_by_duration_has_only_runs_with_a_duration(
    any_store: Store, make: Make
) -> None:
    (thread,) = await add_threads(any_store, make, 1)
    waiting = make.run(thread)
    short, long, also_long = (
        make.run(thread, status=RunStatus.COMPLETED, total_duration_ns=spent) for spent in (3, 8, 8)
    )
    await add_runs(any_store, long, waiting, short, also_long)

    assert await list_runs(any_store, page=LONGEST_FIRST) == [also_long, long, short]
    rest = Page(limit=50, order_by="duration", after=also_long.id)
    assert await list_runs(any_store, page=rest) == [long, short]
    shorter_first = Page(limit=2, order_by="duration", order=Order.ASC)
    assert await list_runs(any_store, page=shorter_first) == [short, long]
    assert waiting not in await list_runs(any_store, duration=Bound(LT, 100))
    assert waiting not in await list_runs(any_store, duration_percentile=0)
    with pytest.raises(NotFound, match=f"No Run found with id {waiting.id}"):
        await list_runs(any_store, page=Page(limit=50, order_by="duration", after=waiting.id))


@pytest.mark.wire(120)
async def test_a_percentile_is_that_of_the_same_project_agents_and_statuses(
    any_store: Store, make: Make
) -> None:
    one, other = await add_threads(any_store, make, 2)
    runs = [
        make.run(one, status=RunStatus.COMPLETED, total_duration_ns=spent, num_steps=spent)
        for spent in range(1, 11)
    ]
    foreign = make.run(other, status=RunStatus.FAILED, total_duration_ns=1_000, project_id="p")
    await add_runs(any_store, *runs, foreign)

    agent = (one.agent_id,)
    assert await list_runs(any_store, agent_ids=agent, duration_percentile=90) == runs[9:]
    assert await list_runs(any_store, agent_ids=agent, duration_percentile=50) == runs[5:]
    assert await list_runs(any_store, agent_ids=agent, duration_percentile=100) == runs[9:]
    assert await list_runs(any_store, statuses=ENDED, duration_percentile=100) == [foreign]
    assert await list_runs(any_store, project_id="p", duration_percentile=100) == [foreign]
    # Any other filter narrows the list, not the set that the percentile is computed of.
    few = Bound(LTE, 6)
    found = await list_runs(any_store, agent_ids=agent, step_count=few, duration_percentile=50)
    assert found == runs[5:6]


def matches(run: Run, query: RunQuery) -> bool:
    """The filters without the percentile, implemented in plain Python."""
    compare = {
        EQ: int.__eq__,
        GT: int.__gt__,
        GTE: int.__ge__,
        LT: int.__lt__,
        LTE: int.__le__,
    }
    spent = run.total_duration_ns
    by_duration = query.page.order_by == "duration"
    return (
        query.run_id in (None, run.id)
        and (not query.agent_ids or run.agent_id in query.agent_ids)
        and query.thread_id in (None, run.thread_id)
        and (not query.statuses or run.status in query.statuses)
        and query.stop_reason in (None, run.stop_reason)
        and query.background in (None, run.background)
        and query.project_id in (None, run.project_id)
        and query.template_family in (None, run.base_template_id)
        and (query.start_date is None or run.created_at >= query.start_date)
        and (query.end_date is None or run.created_at <= query.end_date)
        and (
            query.step_count is None
            or compare[query.step_count.comparison](run.num_steps, query.step_count.value)
        )
        and (not query.tools_used or bool(set(query.tools_used) & set(run.tools_used)))
        and (
            query.duration is None
            or (
                spent is not None
                and compare[query.duration.comparison](spent, query.duration.value)
            )
        )
        and (not by_duration or spent is not None)
    )


def sort_runs(runs: list[Run], page: Page) -> list[Run]:
    key = "total_duration_ns" if page.order_by == "duration" else "created_at"
    falling = page.order is Order.DESC
    return sorted(runs, key=lambda run: (getattr(run, key), run.id), reverse=falling)


def as_query(fields: dict[str, Any]) -> RunQuery:
    return RunQuery(**fields)


def make_assorted_runs(make: Make, threads: list[Thread]) -> list[Run]:
    """Thirty runs that differ in all fields, some with the same time."""
    statuses = list(RunStatus)
    runs = []
    for number in range(30):
        status = statuses[number % len(statuses)]
        live = status in LIVE
        runs.append(
            make.run(
                threads[number] if live or status is RunStatus.PAUSED else threads[number % 3],
                status=status,
                stop_reason=None if live else list(StopReason)[number % 3],
                background=number % 2 == 0,
                created_at=moment(number // 2),
                total_duration_ns=None if live else number % 4 * 10,
                num_steps=number % 3,
                project_id=(None, "p", "q")[number % 3],
                base_template_id=(None, "family")[number % 2],
                tools_used=TOOLS[: number % 4],
            )
        )
    return runs


@pytest.mark.slow
async def test_any_conditions_combine_in_any_order(any_store: SqlStore, make: Make) -> None:
    threads = await add_threads(any_store, make, 30)
    runs = make_assorted_runs(make, threads)
    await add_runs(any_store, *runs)
    bounds = st.builds(Bound, st.sampled_from(Comparison), st.sampled_from([0, 1, 2, 10, 20]))
    moments = st.integers(0, 15).map(moment)
    agents = st.sampled_from([thread.agent_id for thread in threads[:3]])
    queries = st.fixed_dictionaries(
        {
            "page": st.builds(
                Page,
                limit=st.sampled_from([1, 3, 50]),
                order=st.sampled_from(Order),
                order_by=st.sampled_from(["created_at", "duration"]),
            )
        },
        optional={
            "run_id": st.sampled_from([run.id for run in runs]),
            "agent_ids": st.lists(agents, max_size=2, unique=True).map(tuple),
            "thread_id": agents,
            "statuses": st.lists(st.sampled_from(RunStatus), max_size=3, unique=True).map(tuple),
            "stop_reason": st.sampled_from(list(StopReason)[:3]),
            "background": st.booleans(),
            "project_id": st.sampled_from(["p", "q", "r"]),
            "template_family": st.just("family"),
            "start_date": moments,
            "end_date": moments,
            "step_count": bounds,
            "tools_used": st.lists(st.sampled_from(TOOLS), max_size=2).map(tuple),
            "duration": bounds,
        },
    ).map(as_query)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(queries, min_size=5, max_size=5))
    def check(run_queries: list[RunQuery]) -> None:
        # Directly on a connection: a thread switch per query would cost more than the query.
        with any_store._reader.connect() as connection:
            connection.begin()
            for query in run_queries:
                expected = sort_runs([run for run in runs if matches(run, query)], query.page)
                found = SqlRuns(connection, TableQueue(connection)).list(ORG, query)
                assert [run.id for run in found] == [run.id for run in expected[: query.page.limit]]

    check()
