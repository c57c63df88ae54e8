"""The inbox: approval requests of all agents, and answers to them. Not in V1."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core import runs as core
from holdfast.core.approvals import ApprovalQuery
from holdfast.core.messages import default_thread_id
from holdfast.core.paging import Order, Page
from holdfast.core.threads import DEFAULT_CONVERSATION
from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.from_wire.approvals import approval_decisions
from holdfast.http.letta_v1.images import fetch_linked_images
from holdfast.http.letta_v1.parameters.ids import MessageId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.approvals import Approval, DecideBody
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.sends import SenderDep
from holdfast.http.letta_v1.to_wire.approvals import api_approval
from holdfast.usecases import approvals

router = APIRouter(prefix="/v1/approvals", route_class=JsonRoute, tags=["approvals"])

TOTAL_COUNT_HEADER = "x-total-count"

_SORT_COLUMNS = ("created_at", "expires_at")


@router.get("/", responses=describe_response(list[Approval]))
async def list_approvals(
    *,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(limit=100, order=Order.ASC, order_by=_SORT_COLUMNS))],
    agent_id: str | None = None,
    conversation_id: Annotated[
        str | None, Query(description="One conversation; with agent_id also 'default'.")
    ] = None,
    tool_name: Annotated[
        str | None, Query(description="Only where this tool is asked for.")
    ] = None,
) -> Response:
    """Requests that wait for an answer, oldest first, or the next to expire first (order_by=expires_at). The header x-total-count has the number on all pages."""
    query = ApprovalQuery(
        page=page,
        agent_id=agent_id,
        thread_id=_thread_id(conversation_id, agent_id),
        tool=tool_name,
    )
    found = await approvals.load_inbox(services, actor, query)
    shown = [
        api_approval(
            row,
            waiting_run_id=found.runs[row.thread_id],
            decided=found.decisions[row.id],
            deadlines=found.deadlines.get(row.thread_id, {}),
        )
        for row in found.requests
    ]
    return json_response(shown, headers={TOTAL_COUNT_HEADER: str(found.count)})


@router.get("/{message_id}", responses=describe_response(Approval))
async def retrieve_approval(
    message_id: MessageId, services: ServicesDep, actor: ActorDep
) -> Response:
    request = await approvals.retrieve(services, actor, message_id)
    deadlines = {item.call.id: item.deadline for item in request.open_calls if item.deadline}
    waiting = request.run.id if request.run else None
    return json_response(
        api_approval(
            request.row,
            waiting_run_id=waiting,
            decided=request.decisions,
            deadlines=deadlines,
        )
    )


@router.post("/{message_id}", responses=describe_response(Run))
async def decide_approval(message_id: MessageId, body: DecideBody, sender: SenderDep) -> Response:
    """Answer an approval request. The response is the run that continues in the background."""
    services, actor = sender.services, sender.actor

    async def decide() -> core.Run:
        await fetch_linked_images(services, body)
        request = await approvals.retrieve(services, actor, message_id)
        decisions = approval_decisions(body, request.undecided_ids)
        return await approvals.decide(
            services, actor, request, decisions, partial=body.partial, key=sender.key
        )

    return await sender.return_run(decide)


def _thread_id(conversation: str | None, agent_id: str | None) -> str | None:
    if conversation != DEFAULT_CONVERSATION:
        return conversation
    if agent_id is None:
        raise InvalidArgument("conversation_id=default needs the agent_id whose default it is.")
    return default_thread_id(agent_id)
