"""The filters of a list of runs (wire-v1 §2.8, §5.9)."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from msgspec.structs import replace

from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Bound, Comparison, RunQuery, StopReason
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.from_wire.runs import parse_statuses
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.limits import Names

ACTIVE = ("created", "running")

_MAX_NUMBER = 2**63 - 1

CountFilter = Annotated[int | None, Query(ge=0, le=_MAX_NUMBER)]


async def _owner_filters(
    *,
    run_id: str | None = None,
    agent_id: str | None = None,
    agent_ids: Annotated[Names | None, Query(deprecated=True)] = None,
    conversation_id: str | None = None,
    project_id: str | None = None,
    template_family: Annotated[
        str | None, Query(description="The base template of the run's agent.")
    ] = None,
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "agent_ids": (agent_id,) if agent_id else tuple(agent_ids or ()),
        "thread_id": conversation_id,
        "project_id": project_id,
        "template_family": template_family,
    }


async def _state_filters(
    *,
    statuses: Annotated[Names | None, Query(description="Any of these.")] = None,
    active: Annotated[
        bool, Query(description="Without statuses: only what is created or running.")
    ] = False,
    stop_reason: StopReason | None = None,
    background: bool | None = None,
    start_date: Annotated[
        datetime | None, Query(description="Created then or later; UTC if it has no offset.")
    ] = None,
    end_date: Annotated[datetime | None, Query(description="Created then or earlier.")] = None,
) -> dict[str, Any]:
    return {
        "statuses": parse_statuses(statuses or (ACTIVE if active else ())),
        "stop_reason": stop_reason,
        "background": background,
        "start_date": as_utc(start_date),
        "end_date": as_utc(end_date),
    }


async def _number_filters(
    *,
    step_count: CountFilter = None,
    step_count_operator: Literal["eq", "gte", "lte"] = "eq",
    tools_used: Annotated[
        Names | None, Query(description="Ids of tools; any of these was called.")
    ] = None,
    duration_value: Annotated[
        int | None, Query(ge=0, le=_MAX_NUMBER, description="In nanoseconds.")
    ] = None,
    duration_operator: Literal["gt", "lt", "eq"] = "gt",
    duration_percentile: Annotated[
        int | None,
        Query(
            ge=0,
            le=100,
            description="Only runs at least as long as so many in a hundred of the same project, agents and statuses.",
        ),
    ] = None,
) -> dict[str, Any]:
    return {
        "step_count": _bound(step_count_operator, step_count),
        "tools_used": tuple(tools_used or ()),
        "duration": _bound(duration_operator, duration_value),
        "duration_percentile": duration_percentile,
    }


async def _run_query(
    page: Annotated[
        Page, Depends(paging(Kind.RUN, limit=100, order_by=("created_at", "duration")))
    ],
    whose: Annotated[dict[str, Any], Depends(_owner_filters)],
    state: Annotated[dict[str, Any], Depends(_state_filters)],
    figures: Annotated[dict[str, Any], Depends(_number_filters)],
    ascending: Annotated[
        bool, Query(deprecated=True, description="Oldest first; wins over order.")
    ] = False,
) -> RunQuery:
    if ascending:
        page = replace(page, order=Order.ASC)
    return RunQuery(page=page, **whose, **state, **figures)


RunFiltersDep = Annotated[RunQuery, Depends(_run_query)]


def _bound(comparison: str, value: int | None) -> Bound | None:
    return None if value is None else Bound(Comparison(comparison), value)
