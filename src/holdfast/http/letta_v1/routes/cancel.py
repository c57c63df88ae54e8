"""Stopping runs (wire-v1 §5.5). How a run is stopped is the use case's and the engine's affair."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from holdfast.errors import Conflict
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.parameters.ids import AgentId, RunId
from holdfast.http.letta_v1.schemas.cancel import CancelBody, CancelRunBody, Outcome
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.to_wire.runs import api_run, cancel_outcomes
from holdfast.usecases import runs

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["runs"])


@router.post("/agents/{agent_id}/messages/cancel", responses=describe_response(dict[str, Outcome]))
async def cancel_runs_of_agent(
    agent_id: AgentId,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[CancelBody | None, Body()] = None,
) -> Response:
    """Cancel these runs, or without ids what the agent is doing: its live runs, else what waits for a person."""
    wish = body or CancelBody()
    chosen = wish.run_ids or await runs.list_cancellable(services, actor, agent_id=agent_id)
    if not chosen:
        raise Conflict(f"No active runs to cancel for agent {agent_id}")
    done = await runs.cancel_all(
        services, actor, chosen, agent_id=agent_id, reason=wish.reason, action=wish.action
    )
    return json_response(cancel_outcomes(done))


@router.post("/runs/{run_id}/cancel", responses=describe_response(Run))
async def cancel_run(
    run_id: RunId,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[CancelRunBody | None, Body()] = None,
) -> Response:
    """Cancel one run (ours). The answer shows the run as it is now; its receipt is in the metadata."""
    wish = body or CancelRunBody()
    run = await runs.cancel(services, actor, run_id, reason=wish.reason, action=wish.action)
    return json_response(api_run(run))
