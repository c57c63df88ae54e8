"""The inbox: what waits for a person across agents and threads, and deciding it from there.

A request goes by the id of the row that asks (wire-v1 §6.2). How an answer is applied is in ``answering``.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.approvals import ApprovalQuery, held_request_id, told
from holdfast.core.messages import Decision, Message, Role
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Run
from holdfast.errors import Conflict, NotFound
from holdfast.ports.house import House
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.messages import ApprovalInput, NewSend

# The answer comes right after the request, or after what was cut between them.
_NEXT_ROWS = 20


class Request(Struct, frozen=True, kw_only=True):
    """What asks for a person, and the decisions so far. ``run`` waits while some are missing."""

    row: Message
    run: Run | None = None
    decisions: tuple[Decision, ...] = ()


class Inbox(Struct, frozen=True):
    """One page, and how many requests there are on all."""

    requests: Sequence[Message]
    count: int


async def inbox(house: House, actor: Actor, query: ApprovalQuery) -> Inbox:
    def load(tx: Transaction) -> Inbox:
        organization_id = actor.organization_id
        return Inbox(
            tx.calls.requests(organization_id, query),
            tx.calls.count_requests(organization_id, query),
        )

    return await house.store.read(load)


async def retrieve(house: House, actor: Actor, request_id: str) -> Request:
    return await house.store.read(lambda tx: _request(tx, actor, request_id))


async def decide(
    house: House,
    actor: Actor,
    request_id: str,
    decisions: Sequence[Decision],
    *,
    partial: bool = False,
) -> Run:
    """Answer the request; its run goes on by a new one, in the background and as it was asked for.
    Conflict, with who decided, if somebody was faster."""
    request = await retrieve(house, actor, request_id)
    if request.run is None:
        raise Conflict(_decided(request))
    asked = request.run.request
    model = asked.override_model
    new = NewSend(
        agent_id=request.row.agent_id,
        thread_id=request.row.thread_id,
        input=(ApprovalInput(decisions=tuple(decisions), partial=partial),),
        request=replace(asked, stream_tokens=False),
        override_model=model.handle if model else None,
        kind=messages.ASYNC,
        background=True,
        may_repeat=False,
    )
    return await messages.send(house, actor, new)


def _request(tx: Transaction, actor: Actor, request_id: str) -> Request:
    try:
        row = tx.messages.get(actor.organization_id, request_id)
    except NotFound:
        raise _missing(request_id) from None
    if row.role is not Role.APPROVAL or not row.tool_calls:
        raise _missing(request_id)
    paused = tx.runs.paused_on(row.thread_id)
    if paused is not None and held_request_id(tx.calls.open(row.thread_id)) == row.id:
        return Request(row=row, run=paused, decisions=_decisions(tx, actor, row))
    return Request(row=row, decisions=_decisions(tx, actor, row))


def _decisions(tx: Transaction, actor: Actor, row: Message) -> tuple[Decision, ...]:
    """The last is missing while it is being carried out: it is stored with its results."""
    page = Page(limit=_NEXT_ROWS, order=Order.ASC, after=row.id)
    later = tx.messages.list(actor.organization_id, page, thread_id=row.thread_id)
    asked = {call.id for call in row.tool_calls}
    found = (decision for item in later for decision in item.decisions)
    return tuple(decision for decision in found if decision.call_id in asked)


def _decided(request: Request) -> str:
    words = [
        f"The request {request.row.id} waits for nobody any more",
        *map(told, request.decisions),
    ]
    return f"{'. '.join(words)}."


def _missing(request_id: str) -> NotFound:
    return NotFound(f"Approval with ID {request_id} not found")
