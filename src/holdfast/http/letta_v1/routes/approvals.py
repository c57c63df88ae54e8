"""The inbox: what waits for a person, wherever it waits, and deciding it. Not in V1."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.approvals import ApprovalQuery
from holdfast.core.deadlines import Deadline
from holdfast.core.messages import Decision, Message, conversation_id, default_thread_id
from holdfast.core.paging import Order, Page
from holdfast.errors import InvalidArgument
from holdfast.http.dependencies import ActorDep, HouseDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import documented, json_response
from holdfast.http.letta_v1.from_wire import decisions_of
from holdfast.http.letta_v1.ids import MessageId
from holdfast.http.letta_v1.paging import paging
from holdfast.http.letta_v1.pictures import Decided
from holdfast.http.letta_v1.schemas.approvals import Approval, CallDeadline
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.to_wire.messages import api_call, api_decision
from holdfast.http.letta_v1.to_wire.runs import api_run
from holdfast.usecases import approvals

router = APIRouter(prefix="/v1/approvals", route_class=JsonRoute, tags=["approvals"])

TOTAL = "x-total-count"

_DEFAULT_CONVERSATION = "default"
_ORDERS = ("created_at", "expires_at")


@router.get("/", responses=documented(list[Approval]))
async def list_approvals(
    *,
    house: HouseDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(limit=100, order=Order.ASC, order_by=_ORDERS))],
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
        thread_id=_thread(conversation_id, agent_id),
        tool=tool_name,
    )
    found = await approvals.inbox(house, actor, query)
    shown = [
        _approval(
            row,
            waiting_run_id=found.runs[row.thread_id],
            decided=found.decisions[row.id],
            deadlines=found.deadlines.get(row.thread_id, {}),
        )
        for row in found.requests
    ]
    return json_response(shown, headers={TOTAL: str(found.count)})


@router.get("/{message_id}", responses=documented(Approval))
async def retrieve_approval(message_id: MessageId, house: HouseDep, actor: ActorDep) -> Response:
    request = await approvals.retrieve(house, actor, message_id)
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


@router.post("/{message_id}", responses=documented(Run))
async def decide_approval(
    message_id: MessageId, body: Decided, house: HouseDep, actor: ActorDep
) -> Response:
    """Decide; the answer is the run that carries it out, in the background."""
    request = await approvals.retrieve(house, actor, message_id)
    before = {item.call_id for item in request.decisions}
    calls = [call.id for call in request.row.tool_calls if call.id not in before]
    decisions = decisions_of(body, calls)
    run = await approvals.decide(house, actor, message_id, decisions, partial=body.partial)
    return json_response(api_run(run))


def _thread(conversation: str | None, agent_id: str | None) -> str | None:
    if conversation != _DEFAULT_CONVERSATION:
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
