"""The inbox: what waits for a person, wherever it waits, and deciding it. Not in V1."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.approvals import ApprovalQuery
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Decision, Message, conversation_id, default_thread_id
from holdfast.core.paging import Order, Page
from holdfast.core.threads import DEFAULT_CONVERSATION
from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.from_wire import approval_decisions
from holdfast.http.letta_v1.ids import MessageId
from holdfast.http.letta_v1.paging import paging
from holdfast.http.letta_v1.pictures import Decided
from holdfast.http.letta_v1.schemas.approvals import Approval, CallDeadline
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.to_wire.messages import api_call, api_decision
from holdfast.http.letta_v1.to_wire.runs import api_run
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
    """What waits for a person, the longest first, or the most urgent (order_by=expires_at). The header x-total-count counts all pages."""
    query = ApprovalQuery(
        page=page,
        agent_id=agent_id,
        thread_id=_thread_id(conversation_id, agent_id),
        tool=tool_name,
    )
    found = await approvals.load_inbox(services, actor, query)
    shown = [
        _approval(
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
        _approval(
            request.row,
            waiting_run_id=waiting,
            decided=request.decisions,
            deadlines=deadlines,
        )
    )


@router.post("/{message_id}", responses=describe_response(Run))
async def decide_approval(
    message_id: MessageId, body: Decided, services: ServicesDep, actor: ActorDep
) -> Response:
    """Decide; the answer is the run that carries it out, in the background."""
    request = await approvals.retrieve(services, actor, message_id)
    decisions = approval_decisions(body, request.undecided_ids)
    run = await approvals.decide(services, actor, request, decisions, partial=body.partial)
    return json_response(api_run(run))


def _thread_id(conversation: str | None, agent_id: str | None) -> str | None:
    if conversation != DEFAULT_CONVERSATION:
        return conversation
    if agent_id is None:
        raise InvalidArgument("conversation_id=default needs the agent_id whose default it is.")
    return default_thread_id(agent_id)


def _approval(
    row: Message,
    *,
    waiting_run_id: str | None,
    decided: Sequence[Decision],
    deadlines: Mapping[str, Deadline],
) -> Approval:
    return Approval(
        id=row.id,
        status="pending" if waiting_run_id else "decided",
        agent_id=row.agent_id,
        conversation_id=conversation_id(row.thread_id, row.agent_id),
        run_id=row.run_id,
        step_id=row.step_id,
        waiting_run_id=waiting_run_id,
        created_at=row.created_at,
        tool_calls=[api_call(call) for call in row.tool_calls],
        approvals=[api_decision(item) for item in decided],
        expires_at=min((deadline.at for deadline in deadlines.values()), default=None),
        deadlines=[
            CallDeadline(tool_call_id=call_id, expires_at=item.at, on_timeout=item.outcome)
            for call_id, item in deadlines.items()
        ],
    )
