"""Steps: one call of the model each, with the tools that its answer asked for (wire-v1 §2.9)."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.paging import Order, Page
from holdfast.core.runs import StepQuery
from holdfast.http.dependencies import ActorDep, HouseDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import documented, json_response
from holdfast.http.letta_v1.from_wire import aware
from holdfast.http.letta_v1.ids import StepId
from holdfast.http.letta_v1.paging import paging
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


@router.get("/", responses=documented(list[Step]))
async def list_steps(
    *,
    house: HouseDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(limit=50))],
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    model: str | None = None,
    agent_id: str | None = None,
    trace_ids: Annotated[list[str] | None, Query()] = None,
    feedback: Feedback | None = None,
    has_feedback: bool | None = None,
    tags: Annotated[list[str] | None, Query()] = None,
    project_id: str | None = None,
) -> Response:
    query = StepQuery(
        page=page,
        agent_id=agent_id,
        model=model,
        start_date=aware(start_date),
        end_date=aware(end_date),
        feedback=feedback,
        has_feedback=has_feedback,
        tags=tuple(tags or ()),
        project_id=project_id,
        trace_ids=tuple(trace_ids or ()),
    )
    found = await steps.list_steps(house, actor, query)
    return json_response([api_step(step) for step in found])


@router.get("/{step_id}", responses=documented(Step))
async def retrieve_step(step_id: StepId, house: HouseDep, actor: ActorDep) -> Response:
    return json_response(api_step(await steps.retrieve(house, actor, step_id)))


@router.get("/{step_id}/metrics", responses=documented(StepMetrics))
async def retrieve_step_metrics(step_id: StepId, house: HouseDep, actor: ActorDep) -> Response:
    return json_response(step_metrics(await steps.retrieve(house, actor, step_id)))


@router.get("/{step_id}/messages", responses=documented(list[ApiMessage]))
async def list_step_messages(
    step_id: StepId,
    house: HouseDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(limit=100, order=Order.ASC))],
) -> Response:
    return json_response(api_listing(await steps.messages(house, actor, step_id, page)))


@router.get("/{step_id}/trace", responses=documented((ProviderTrace, None)))
async def retrieve_step_trace(step_id: StepId, house: HouseDep, actor: ActorDep) -> Response:
    """What the step's provider was sent and answered, the last time if it was asked again. Null if that is not
    kept (HOLDFAST_PROVIDER_TRACES)."""
    kept = await steps.trace(house, actor, step_id)
    return json_response(provider_trace(*kept) if kept else None)


telemetry_router.get("/{step_id}", responses=documented((ProviderTrace, None)))(retrieve_step_trace)


@router.patch("/{step_id}/feedback", responses=documented(Step))
async def set_step_feedback(
    step_id: StepId, body: FeedbackBody, house: HouseDep, actor: ActorDep
) -> Response:
    tags = None if body.tags is None else tuple(body.tags)
    step = await steps.set_feedback(house, actor, step_id, body.feedback, tags)
    return json_response(api_step(step))


@router.patch("/{step_id}/transaction/{transaction_id}", responses=documented(Step))
async def set_step_transaction(
    step_id: StepId, transaction_id: str, house: HouseDep, actor: ActorDep
) -> Response:
    return json_response(
        api_step(await steps.set_transaction(house, actor, step_id, transaction_id))
    )
