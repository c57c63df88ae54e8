"""Steps: each is one call of the model with the tool calls of its answer (wire-v1 §2.9)."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.ids import Kind
from holdfast.core.paging import Order, Page
from holdfast.core.steps import StepQuery
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.dates import as_utc
from holdfast.http.letta_v1.parameters.ids import StepId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.limits import Names
from holdfast.http.letta_v1.schemas.messages import ApiMessage
from holdfast.http.letta_v1.schemas.steps import (
    Feedback,
    FeedbackBody,
    ProviderTrace,
    Step,
    StepMetrics,
)
from holdfast.http.letta_v1.to_wire.messages import api_listing
from holdfast.http.letta_v1.to_wire.steps import api_step, provider_trace, step_metrics
from holdfast.usecases import steps

router = APIRouter(prefix="/v1/steps", route_class=JsonRoute, tags=["steps"])
telemetry_router = APIRouter(prefix="/v1/telemetry", route_class=JsonRoute, tags=["steps"])


@router.get("/", responses=describe_response(list[Step]))
async def list_steps(
    *,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.STEP, limit=50))],
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    model: str | None = None,
    agent_id: str | None = None,
    trace_ids: Annotated[Names | None, Query()] = None,
    feedback: Feedback | None = None,
    has_feedback: bool | None = None,
    tags: Annotated[Names | None, Query()] = None,
    project_id: str | None = None,
) -> Response:
    query = StepQuery(
        page=page,
        agent_id=agent_id,
        model=model,
        start_date=as_utc(start_date),
        end_date=as_utc(end_date),
        feedback=feedback,
        has_feedback=has_feedback,
        tags=tuple(tags or ()),
        project_id=project_id,
        trace_ids=tuple(trace_ids or ()),
    )
    found = await steps.list_steps(services, actor, query)
    return await list_response(found, api_step)


@router.get("/{step_id}", responses=describe_response(Step))
async def retrieve_step(step_id: StepId, services: ServicesDep, actor: ActorDep) -> Response:
    return json_response(api_step(await steps.retrieve(services, actor, step_id)))


@router.get("/{step_id}/metrics", responses=describe_response(StepMetrics))
async def retrieve_step_metrics(
    step_id: StepId, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(step_metrics(await steps.retrieve(services, actor, step_id)))


@router.get("/{step_id}/messages", responses=describe_response(list[ApiMessage]))
async def list_step_messages(
    step_id: StepId,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.MESSAGE, limit=100, order=Order.ASC))],
) -> Response:
    return json_response(api_listing(await steps.list_messages(services, actor, step_id, page)))


@router.get("/{step_id}/trace", responses=describe_response((ProviderTrace, None)))
async def retrieve_step_trace(step_id: StepId, services: ServicesDep, actor: ActorDep) -> Response:
    """The step's request to the provider and its answer; after retries, the last ones. Null if they are not stored
    (HOLDFAST_PROVIDER_TRACES)."""
    trace = await steps.retrieve_trace(services, actor, step_id)
    return json_response(provider_trace(*trace) if trace else None)


telemetry_router.get("/{step_id}", responses=describe_response((ProviderTrace, None)))(
    retrieve_step_trace
)


@router.patch("/{step_id}/feedback", responses=describe_response(Step))
async def set_step_feedback(
    step_id: StepId, body: FeedbackBody, services: ServicesDep, actor: ActorDep
) -> Response:
    tags = None if body.tags is None else tuple(body.tags)
    step = await steps.set_feedback(services, actor, step_id, body.feedback, tags)
    return json_response(api_step(step))


@router.patch("/{step_id}/transaction/{transaction_id}", responses=describe_response(Step))
async def set_step_transaction(
    step_id: StepId, transaction_id: str, services: ServicesDep, actor: ActorDep
) -> Response:
    return json_response(
        api_step(await steps.set_transaction(services, actor, step_id, transaction_id))
    )
