"""Selecting a page of runs. Filters can be combined freely, and there may be a million runs. So a query scans one
index at most, in the order of the list. That index contains all columns of the filters, and only the rows of the page
are read from the table."""

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Select, exists, func, select, text

from holdfast.adapters.store import tables
from holdfast.adapters.store.index_hints import prefer_indexes, without_index
from holdfast.adapters.store.paging import PagedList
from holdfast.core.lifecycle import LIVE, UNSUCCESSFUL
from holdfast.core.runs import Bound, Comparison, RunQuery, RunStatus

_runs = tables.runs
_tools = tables.run_tools

# If at most this many runs called a tool, they are selected by id; more are found soon enough by scanning an index.
FEW_RUNS: Final = 1_000
BY_DURATION: Final = "duration"
# Up to this many runs of one agent, sorting them is faster than finding them in the index of all durations.
_MAX_SORTED_RUNS: Final = 20_000

_COMPARE: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.EQ: operator.eq,
    Comparison.GT: operator.gt,
    Comparison.GTE: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LTE: operator.le,
}

_paged_list = PagedList(
    "Run",
    _runs.c.id,
    organization_id=_runs.c.organization_id,
    orders={"created_at": _runs.c.created_at, BY_DURATION: _runs.c.total_duration_ns},
    only_with_value=(BY_DURATION,),
)


def status_condition(statuses: Collection[RunStatus], table: str = "runs") -> ColumnElement[bool]:
    """Return the condition as literal SQL, exactly as the partial index has it. With bound parameters the database would
    not use the index and would read all runs."""
    names = [f"'{status}'" for status in sorted(statuses)]
    comparison = f"IN ({', '.join(names)})" if len(names) > 1 else f"= {names[0]}"
    return text(f"{table}.status {comparison}")  # type: ignore[return-value] # SQLAlchemy accepts text as a condition


IS_LIVE: Final = status_condition(LIVE)
_PAUSED: Final = frozenset({RunStatus.PAUSED})
# Statuses that few runs have. Each group has its own partial index.
_RARE_STATUSES: Final = {
    LIVE: IS_LIVE,
    _PAUSED: status_condition(_PAUSED),
    UNSUCCESSFUL: status_condition(UNSUCCESSFUL),
}


def ids_on_page(connection: Connection, organization_id: str, query: RunQuery) -> Sequence[str]:
    """Return the ids of the runs on the page, in sort order."""
    prefer_indexes(connection)
    few = _find_few_by_tools(connection, query)
    if query.tools_used and few is not None and not few:
        return []
    index_columns = _index_columns(query, few)
    selected = select(_runs.c.id).where(*_conditions(query, index_columns))
    if query.tools_used:
        selected = selected.where(
            _used_tools(query.tools_used) if few is None else _runs.c.id.in_(few)
        )
    if query.duration_percentile is not None:
        least = _find_percentile(connection, organization_id, query)
        if least is None:
            return []
        selected = selected.where(_hint(_runs.c.total_duration_ns, index_columns) >= least)
    rows = _paged_list.select_page(
        connection,
        selected,
        organization_id,
        query.page,
        has_narrower_condition=_runs.c.organization_id not in index_columns,
    )
    return [row[0] for row in rows]


def _find_few_by_tools(connection: Connection, query: RunQuery) -> Sequence[str] | None:
    """Return the runs that called one of the tools; None if there are more than ``FEW_RUNS``."""
    if not query.tools_used:
        return ()
    using = (
        select(_tools.c.run_id).where(_tools.c.tool_id.in_(query.tools_used)).limit(FEW_RUNS + 1)
    )
    found = connection.execute(using).scalars().all()
    return None if len(found) > FEW_RUNS else found


def _used_tools(tool_ids: Collection[str]) -> ColumnElement[bool]:
    return exists().where(_tools.c.run_id == _runs.c.id, _tools.c.tool_id.in_(tool_ids))


def _index_columns(query: RunQuery, few: Sequence[str] | None) -> Collection[Column[Any]]:
    """Return the columns that the chosen index is searched by. All other conditions are checked while it is scanned."""
    c = _runs.c
    by_duration = query.page.order_by == BY_DURATION
    if query.run_id is not None or few:
        return {c.id}
    if _are_all_in(query.statuses, LIVE):
        return {c.created_at}
    if _are_all_in(query.statuses, _PAUSED):
        return ()
    if query.thread_id is not None:
        return {c.thread_id, c.total_duration_ns if by_duration else c.created_at}
    if by_duration:
        return {c.organization_id, c.total_duration_ns}
    if len(query.agent_ids) == 1:
        return {c.agent_id, c.created_at}
    if _are_all_in(query.statuses, UNSUCCESSFUL):
        return {c.created_at}
    return {c.organization_id, c.created_at}


def _are_all_in(statuses: Collection[RunStatus], group: frozenset[RunStatus]) -> bool:
    return bool(statuses) and group.issuperset(statuses)


def _hint(column: Column[Any], index_columns: Collection[Column[Any]]) -> ColumnElement[Any]:
    return column if column in index_columns else without_index(column)


def _conditions(
    query: RunQuery, index_columns: Collection[Column[Any]]
) -> list[ColumnElement[bool]]:
    c = _runs.c
    created_at = _hint(c.created_at, index_columns)
    conditions = _percentile_conditions(query, index_columns)
    if query.run_id is not None:
        conditions.append(c.id == query.run_id)
    if query.thread_id is not None:
        conditions.append(_hint(c.thread_id, index_columns) == query.thread_id)
    if query.stop_reason is not None:
        conditions.append(c.stop_reason == query.stop_reason)
    if query.background is not None:
        conditions.append(c.background.is_(query.background))
    if query.template_family is not None:
        conditions.append(c.base_template_id == query.template_family)
    if query.start_date is not None:
        conditions.append(created_at >= query.start_date)
    if query.end_date is not None:
        conditions.append(created_at <= query.end_date)
    if query.step_count is not None:
        conditions.append(_bound_condition(c.num_steps, query.step_count))
    if query.duration is not None:
        conditions.append(
            _bound_condition(_hint(c.total_duration_ns, index_columns), query.duration)
        )
    return conditions


def _percentile_conditions(
    query: RunQuery, index_columns: Collection[Column[Any]]
) -> list[ColumnElement[bool]]:
    """Return the conditions that define the set of runs for a percentile (wire-v1 §8.4)."""
    c = _runs.c
    conditions: list[ColumnElement[bool]] = []
    if len(query.agent_ids) == 1:
        conditions.append(_hint(c.agent_id, index_columns) == query.agent_ids[0])
    elif query.agent_ids:
        conditions.append(without_index(c.agent_id).in_(query.agent_ids))
    if query.project_id is not None:
        conditions.append(c.project_id == query.project_id)
    if query.statuses:
        conditions.append(c.status.in_(query.statuses))
        conditions += (
            condition
            for group, condition in _RARE_STATUSES.items()
            if _are_all_in(query.statuses, group)
        )
    return conditions


def _bound_condition(column: ColumnElement[Any], bound: Bound) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = _COMPARE[bound.comparison](column, bound.value)
    return condition


def _find_percentile(connection: Connection, organization_id: str, query: RunQuery) -> int | None:
    """Return the smallest duration within the percentile; None if no run has a duration. V1 interpolates here, which
    selects the same runs."""
    percentile = query.duration_percentile or 0
    c = _runs.c
    by_duration = {c.organization_id, c.total_duration_ns}
    by_agent = {c.agent_id} if len(query.agent_ids) == 1 else by_duration

    def with_duration(
        what: ColumnElement[Any], index_columns: Collection[Column[Any]]
    ) -> Select[Any]:
        return select(what).where(
            _hint(c.organization_id, index_columns) == organization_id,
            c.total_duration_ns.is_not(None),
            *_percentile_conditions(query, index_columns),
        )

    count: int = connection.execute(with_duration(func.count(), by_agent)).scalar_one()
    if count == 0:
        return None
    rank = math.ceil(percentile * (count - 1) / 100)
    # Counted from the nearer end of the index: most callers want the longest runs.
    from_end = count - 1 - rank
    order, steps = (
        (c.total_duration_ns.desc(), from_end)
        if from_end < rank
        else (c.total_duration_ns.asc(), rank)
    )
    index_columns = by_agent if count <= _MAX_SORTED_RUNS else by_duration
    ranked = (
        with_duration(c.total_duration_ns, index_columns).order_by(order).offset(steps).limit(1)
    )
    least: int = connection.execute(ranked).scalar_one()
    return least
