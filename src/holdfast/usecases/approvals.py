"""The inbox: what waits for a person across agents and threads, and deciding it from there.

A request goes by the id of the row that asks (wire-v1 §6.2). How an answer is applied is in ``answering``.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.approvals import ApprovalQuery, Overdue, answered_in_part, held_request_id, told
from holdfast.core.deadlines import Deadline
from holdfast.core.expiry import expired
from holdfast.core.messages import Decision, Message, OpenCall, Role
from holdfast.core.runs import Run
from holdfast.errors import Conflict, NotFound
from holdfast.ports.house import House
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.answering import Manner, first_to_answer
from holdfast.usecases.messages import ApprovalInput, NewSend


class Request(Struct, frozen=True, kw_only=True):
    """What asks for a person, and the decisions so far. ``run`` waits while some are missing."""

    row: Message
    run: Run | None = None
    decisions: tuple[Decision, ...] = ()
    open_calls: tuple[OpenCall, ...] = ()


class Inbox(Struct, frozen=True):
    """One page, how many requests there are on all, by request the decisions so far, by thread and call what does
    not wait for ever, and by thread the run that waits."""

    requests: Sequence[Message]
    count: int
    decisions: Mapping[str, Sequence[Decision]]
    deadlines: Mapping[str, Mapping[str, Deadline]]
    runs: Mapping[str, str]


async def inbox(house: House, actor: Actor, query: ApprovalQuery) -> Inbox:
    def load(tx: Transaction) -> Inbox:
        organization_id = actor.organization_id
        requests = tx.calls.requests(organization_id, query)
        threads = [row.thread_id for row in requests]
        return Inbox(
            requests,
            tx.calls.count_requests(organization_id, query),
            _recorded(tx, requests),
            tx.calls.deadlines(threads),
            tx.runs.paused(threads),
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
    return await _answer(
        house, actor, request, decisions, Manner(partial=partial, may_repeat=False)
    )


async def expire(house: House, overdue: Overdue) -> Run:
    """Give the calls of the request whose time is up the answer that they were to get then. It is one like any
    other: Conflict if somebody was faster."""
    # Nobody acts; what matters is the organisation.
    actor = Actor(user_id="", organization_id=overdue.organization_id)
    request = await retrieve(house, actor, overdue.request_id)
    decisions = expired(request.open_calls, house.clock.now())
    manner = Manner(partial=True, may_repeat=False, by_clock=True)
    return await _answer(house, actor, request, decisions, manner)


async def _answer(
    house: House, actor: Actor, request: Request, decisions: Sequence[Decision], manner: Manner
) -> Run:
    if request.run is None or not decisions:
        raise Conflict(_decided(request))
    asked = request.run.request
    model = asked.override_model
    new = NewSend(
        agent_id=request.row.agent_id,
        thread_id=request.row.thread_id,
        input=(ApprovalInput(decisions=tuple(decisions), manner=manner),),
        request=replace(asked, stream_tokens=False),
        override_model=model.handle if model else None,
        kind=messages.ASYNC,
        background=True,
    )
    return await messages.send(house, actor, new)


def _request(tx: Transaction, actor: Actor, request_id: str) -> Request:
    try:
        row = tx.messages.get(actor.organization_id, request_id)
    except NotFound:
        raise _missing(request_id) from None
    if row.role is not Role.APPROVAL or not row.tool_calls:
        raise _missing(request_id)
    decisions = _decisions(tx, row, actor.organization_id)
    paused = tx.runs.paused_on(row.thread_id)
    calls = tuple(tx.calls.open(row.thread_id))
    if paused is not None and held_request_id(calls) == row.id:
        return Request(row=row, run=paused, decisions=decisions, open_calls=calls)
    return Request(row=row, decisions=decisions)


def _decisions(tx: Transaction, row: Message, organization_id: str) -> tuple[Decision, ...]:
    """In the order in which they were made; the last may be still under way: it is stored with its results."""
    # Before the rows: if it ends in between, those tell of it.
    under_way = first_to_answer(tx, row.thread_id, organization_id)
    recorded = _recorded(tx, [row])[row.id]
    return _first(row, [*recorded, *_made(under_way.input if under_way else ())])


def _recorded(tx: Transaction, requests: Sequence[Message]) -> dict[str, tuple[Decision, ...]]:
    """By request. An answer belongs to the step that asked."""
    made: dict[str | None, list[Decision]] = {}
    for row in tx.messages.answers([row.step_id for row in requests if row.step_id is not None]):
        made.setdefault(row.step_id, []).extend(row.decisions)
    return {row.id: _first(row, made.get(row.step_id, [])) for row in requests}


def _made(rows: Sequence[Message]) -> list[Decision]:
    return [decision for row in rows for decision in row.decisions]


def _first(request: Message, made: Sequence[Decision]) -> tuple[Decision, ...]:
    """Of each call the first: who repeats it decides nothing."""
    asked = {call.id for call in request.tool_calls}
    found: dict[str, Decision] = {}
    for decision in made:
        if decision.call_id in asked:
            found.setdefault(decision.call_id, decision)
    return tuple(found.values())


def _decided(request: Request) -> str:
    decided = {item.call_id for item in request.decisions}
    left = [call.id for call in request.row.tool_calls if call.id not in decided]
    state = "waits for nobody any more"
    if left and decided:
        state = answered_in_part(left)
    words = [f"The request {request.row.id} {state}", *map(told, request.decisions)]
    return f"{'. '.join(words)}."


def _missing(request_id: str) -> NotFound:
    return NotFound(f"Approval with ID {request_id} not found")
