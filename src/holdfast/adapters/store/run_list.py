"""Which runs are on a page. Any conditions may meet, and there may be a million runs: so at most one index is walked,
in the order of the list; all conditions are in it, and only the rows of the page itself are read afterwards."""

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

# Runs that called a tool: up to so many are looked up one by one, more are met soon enough on the way.
FEW_RUNS: Final = 1_000
BY_DURATION: Final = "duration"
# So many runs of an agent are sorted sooner than they are met among all others.
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
    """In the words of an index: with parameters in their place no database would think of it, and would read all
    runs instead."""
    names = [f"'{status}'" for status in sorted(statuses)]
    words = f"IN ({', '.join(names)})" if len(names) > 1 else f"= {names[0]}"
    return text(f"{table}.status {words}")  # type: ignore[return-value] # a condition, if plain


IS_LIVE: Final = status_condition(LIVE)
_PAUSED: Final = frozenset({RunStatus.PAUSED})
# Statuses that few runs have, each group with an index of its own.
_RARE_STATUSES: Final = {
    LIVE: IS_LIVE,
    _PAUSED: status_condition(_PAUSED),
    UNSUCCESSFUL: status_condition(UNSUCCESSFUL),
}


def ids_on_page(connection: Connection, organization_id: str, query: RunQuery) -> Sequence[str]:
    """The ids of the runs, in sort order."""
    prefer_indexes(connection)
    few = _find_few_by_tools(connection, query)
    if query.tools_used and few is not None and not few:
        return []
    led_by = _index_columns(query, few)
    wanted = select(_runs.c.id).where(*_conditions(query, led_by))
    if query.tools_used:
        wanted = wanted.where(_used_tools(query.tools_used) if few is None else _runs.c.id.in_(few))
    if query.duration_percentile is not None:
        least = _find_percentile(connection, organization_id, query)
        if least is None:
            return []
        wanted = wanted.where(_hint(_runs.c.total_duration_ns, led_by) >= least)
    rows = _paged_list.select_page(
        connection,
        wanted,
        organization_id,
        query.page,
        has_narrower_condition=_runs.c.organization_id not in led_by,
    )
    return [row[0] for row in rows]


def _find_few_by_tools(connection: Connection, query: RunQuery) -> Sequence[str] | None:
    """The runs that called one of the tools, if they are few."""
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
    """The columns by which an index is entered; what else is asked is looked at on the way."""
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


def _hint(column: Column[Any], led_by: Collection[Column[Any]]) -> ColumnElement[Any]:
    return column if column in led_by else without_index(column)


def _conditions(query: RunQuery, led_by: Collection[Column[Any]]) -> list[ColumnElement[bool]]:
    c = _runs.c
    created_at = _hint(c.created_at, led_by)
    conditions = _percentile_conditions(query, led_by)
    if query.run_id is not None:
        conditions.append(c.id == query.run_id)
    if query.thread_id is not None:
        conditions.append(_hint(c.thread_id, led_by) == query.thread_id)
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
        conditions.append(_bound_condition(_hint(c.total_duration_ns, led_by), query.duration))
    return conditions


def _percentile_conditions(
    query: RunQuery, led_by: Collection[Column[Any]]
) -> list[ColumnElement[bool]]:
    """The conditions under which a percentile is computed (wire-v1 §8.4)."""
    c = _runs.c
    conditions: list[ColumnElement[bool]] = []
    if len(query.agent_ids) == 1:
        conditions.append(_hint(c.agent_id, led_by) == query.agent_ids[0])
    elif query.agent_ids:
        conditions.append(without_index(c.agent_id).in_(query.agent_ids))
    if query.project_id is not None:
        conditions.append(c.project_id == query.project_id)
    if query.statuses:
        conditions.append(c.status.in_(query.statuses))
        conditions += (
            words for group, words in _RARE_STATUSES.items() if _are_all_in(query.statuses, group)
        )
    return conditions


def _bound_condition(column: ColumnElement[Any], bound: Bound) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = _COMPARE[bound.comparison](column, bound.value)
    return condition


def _find_percentile(connection: Connection, organization_id: str, query: RunQuery) -> int | None:
    """The least duration that belongs to the percentile; None if no run has one. Interpolated as V1 does, no
    run would lie between this and that."""
    share = query.duration_percentile or 0
    c = _runs.c
    by_duration = {c.organization_id, c.total_duration_ns}
    by_agent = {c.agent_id} if len(query.agent_ids) == 1 else by_duration

    def with_duration(what: ColumnElement[Any], led_by: Collection[Column[Any]]) -> Select[Any]:
        return select(what).where(
            _hint(c.organization_id, led_by) == organization_id,
            c.total_duration_ns.is_not(None),
            *_percentile_conditions(query, led_by),
        )

    count: int = connection.execute(with_duration(func.count(), by_agent)).scalar_one()
    if count == 0:
        return None
    place = math.ceil(share * (count - 1) / 100)
    # From the nearer end: most who ask want the longest.
    from_end = count - 1 - place
    order, steps = (
        (c.total_duration_ns.desc(), from_end)
        if from_end < place
        else (c.total_duration_ns.asc(), place)
    )
    led_by = by_agent if count <= _MAX_SORTED_RUNS else by_duration
    ranked = with_duration(c.total_duration_ns, led_by).order_by(order).offset(steps).limit(1)
    least: int = connection.execute(ranked).scalar_one()
    return least
