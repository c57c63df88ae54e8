"""Cancelling runs (wire-v1 §5.5)."""

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
    """Cancel these runs. Without ids, the agent's active runs; if it has none, those that wait for an approval."""
    options = body or CancelBody()
    chosen = options.run_ids or await runs.list_cancellable(services, actor, agent_id=agent_id)
    if not chosen:
        raise Conflict(f"No active runs to cancel for agent {agent_id}")
    done = await runs.cancel_all(
        services, actor, chosen, agent_id=agent_id, reason=options.reason, action=options.action
    )
    return json_response(cancel_outcomes(done))


@router.post("/runs/{run_id}/cancel", responses=describe_response(Run))
async def cancel_run(
    run_id: RunId,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[CancelRunBody | None, Body()] = None,
) -> Response:
    """Not in V1: cancel one run. The answer is the run as it is now; the receipt is in its metadata."""
    options = body or CancelRunBody()
    run = await runs.cancel(services, actor, run_id, reason=options.reason, action=options.action)
    return json_response(api_run(run))
