"""Runs (wire-v1 §2.8). Cancelling them is in ``routes.cancel``."""

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.core.runs import RunQuery
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.runs import parse_cursor, parse_statuses
from holdfast.http.letta_v1.parameters.ids import RunId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.parameters.runs import ACTIVE, RunFiltersDep
from holdfast.http.letta_v1.schemas.explanation import Explanation
from holdfast.http.letta_v1.schemas.messages import ApiMessage
from holdfast.http.letta_v1.schemas.runs import (
    ResumeBody,
    Run,
    RunMetrics,
    RunUpdate,
    TokenUsage,
)
from holdfast.http.letta_v1.schemas.steps import Step
from holdfast.http.letta_v1.schemas.traces import Span
from holdfast.http.letta_v1.streams import STREAM_RESPONSES, resume_stream
from holdfast.http.letta_v1.to_wire.explanation import api_explanation
from holdfast.http.letta_v1.to_wire.messages import api_listing
from holdfast.http.letta_v1.to_wire.runs import api_run, run_metrics, token_usage
from holdfast.http.letta_v1.to_wire.steps import api_step
from holdfast.http.letta_v1.to_wire.traces import run_spans
from holdfast.usecases import explanation, runs

router = APIRouter(prefix="/v1/runs", route_class=JsonRoute, tags=["runs"])

# The same list under the path where V1 had all filters.
internal_router = APIRouter(prefix="/v1/_internal_runs", route_class=JsonRoute, tags=["runs"])

_ACTIVE_LIMIT = 100


@internal_router.get("/", responses=describe_response(list[Run]), operation_id="list_internal_runs")
@router.get("/", responses=describe_response(list[Run]))
async def list_runs(query: RunFiltersDep, services: ServicesDep, actor: ActorDep) -> Response:
    """Filters combine with AND. Sorted or filtered by duration, the list only has runs with a duration."""
    found = await runs.list_runs(services, actor, query)
    return await list_response(found, api_run)


@router.get("/active", responses=describe_response(list[Run]), deprecated=True)
async def list_active_runs(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: str | None = None,
    background: bool | None = None,
) -> Response:
    query = RunQuery(
        page=Page(limit=_ACTIVE_LIMIT),
        agent_ids=(agent_id,) if agent_id else (),
        statuses=parse_statuses(ACTIVE),
        background=background,
    )
    found = await runs.list_runs(services, actor, query)
    return await list_response(found, api_run)


@router.get("/{run_id}", responses=describe_response(Run))
async def retrieve_run(run_id: RunId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(api_run(await runs.retrieve(services, actor, run_id)))


@router.patch("/{run_id}", responses=describe_response(Run))
async def update_run(
    run_id: RunId, body: RunUpdate, services: ServicesDep, actor: ActorDep
) -> Response:
    """Add keys to the run's metadata or replace them, whatever its status is."""
    return json_response(api_run(await runs.annotate(services, actor, run_id, body.metadata)))


@router.delete("/{run_id}", responses=describe_response(None))
async def delete_run(run_id: RunId, services: ServicesDep, actor: ActorDep) -> Response:
    """Delete the run with its steps. Its messages stay in the history."""
    await runs.remove(services, actor, run_id)
    return json_response(None)


@router.get("/{run_id}/messages", responses=describe_response(list[ApiMessage]))
async def list_run_messages(
    run_id: RunId,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.MESSAGE, limit=100, order=Order.ASC))],
) -> Response:
    run = await runs.retrieve(services, actor, run_id)
    rows = await runs.list_messages(services, actor, run_id, page)
    return json_response(api_listing(rows, run.request.include_return_message_types))


@router.post("/{run_id}/stream", responses=STREAM_RESPONSES)
async def stream_run(
    run_id: RunId, services: ServicesDep, actor: ActorDep, body: ResumeBody | None = None
) -> Response:
    """Stream a run from its beginning or from after an event, while it runs or after it has ended."""
    body = body or ResumeBody()
    after = parse_cursor(body.starting_after)
    run = await runs.retrieve(services, actor, run_id)
    return resume_stream(services, run, after=after, include_pings=body.include_pings)


@router.get("/{run_id}/usage", responses=describe_response(TokenUsage))
async def retrieve_run_usage(run_id: RunId, services: ServicesDep, actor: ActorDep) -> Response:
    usage, costs = await runs.load_usage(services, actor, run_id)
    return json_response(token_usage(usage, costs))


@router.get("/{run_id}/steps", responses=describe_response(list[Step]))
async def list_run_steps(
    run_id: RunId,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.STEP, limit=100))],
) -> Response:
    found = await runs.list_steps(services, actor, run_id, page)
    return await list_response(found, api_step)


@router.get("/{run_id}/metrics", responses=describe_response(RunMetrics))
async def retrieve_run_metrics(run_id: RunId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(run_metrics(await runs.retrieve(services, actor, run_id)))


@router.get("/{run_id}/explain", responses=describe_response(Explanation))
async def explain_run(run_id: RunId, services: ServicesDep, actor: ActorDep) -> Response:
    """What the run is doing or how it ended, what it waits for and since when, and the request that would unblock it."""
    return json_response(api_explanation(await explanation.explain_run(services, actor, run_id)))


@router.get("/{run_id}/trace", responses=describe_response(list[Span]))
async def retrieve_run_trace(
    run_id: RunId,
    services: ServicesDep,
    actor: ActorDep,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 1_000,
) -> Response:
    """The run, its steps and their calls as spans, from what is stored."""
    run = await runs.retrieve(services, actor, run_id)
    taken = await runs.list_steps(services, actor, run_id, Page(limit=limit, order=Order.ASC))
    return json_response(list(islice(run_spans(run, taken), limit)))
