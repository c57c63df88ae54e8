"""The inbox: what waits for a person across agents and threads, and deciding it from there.

A request goes by the id of the row that asks (wire-v1 §6.2). How an answer is applied is in ``answering``.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.approvals import (
    ApprovalQuery,
    OverdueRequest,
    describe_decision,
    describe_partial_answer,
    held_request_id,
)
from holdfast.core.deadlines import Deadline
from holdfast.core.expiry import expiry_decisions
from holdfast.core.messages import Decision, Message, OpenCall, Role
from holdfast.core.runs import Run
from holdfast.errors import Conflict, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.approval_answers import AnswerOptions, find_answering_run
from holdfast.usecases.messages import ApprovalInput, NewSend


class ApprovalRequest(Struct, frozen=True, kw_only=True):
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


async def load_inbox(services: Services, actor: Actor, query: ApprovalQuery) -> Inbox:
    def load(tx: Transaction) -> Inbox:
        organization_id = actor.organization_id
        requests = tx.calls.list_requests(organization_id, query)
        threads = [row.thread_id for row in requests]
        return Inbox(
            requests,
            tx.calls.count_requests(organization_id, query),
            _recorded_decisions(tx, requests),
            tx.calls.deadlines(threads),
            tx.runs.paused_run_ids(threads),
        )

    return await services.store.read(load)


async def retrieve(services: Services, actor: Actor, request_id: str) -> ApprovalRequest:
    return await services.store.read(lambda tx: _load_request(tx, actor, request_id))


async def decide(
    services: Services,
    actor: Actor,
    request_id: str,
    decisions: Sequence[Decision],
    *,
    partial: bool = False,
) -> Run:
    """Answer the request; its run goes on by a new one, in the background and as it was asked for.
    Conflict, with who decided, if somebody was faster."""
    request = await retrieve(services, actor, request_id)
    return await _answer(
        services, actor, request, decisions, AnswerOptions(partial=partial, may_repeat=False)
    )


async def expire(services: Services, overdue: OverdueRequest) -> Run:
    """Give the calls of the request whose time is up the answer that they were to get then. It is one like any
    other: Conflict if somebody was faster."""
    # Nobody acts; what matters is the organisation.
    actor = Actor(user_id="", organization_id=overdue.organization_id)
    request = await retrieve(services, actor, overdue.request_id)
    decisions = expiry_decisions(request.open_calls, services.clock.now())
    manner = AnswerOptions(partial=True, may_repeat=False, is_expiry=True)
    return await _answer(services, actor, request, decisions, manner)


async def _answer(
    services: Services,
    actor: Actor,
    request: ApprovalRequest,
    decisions: Sequence[Decision],
    options: AnswerOptions,
) -> Run:
    if request.run is None or not decisions:
        raise Conflict(_describe_decided(request))
    asked = request.run.request
    model = asked.override_model
    new = NewSend(
        agent_id=request.row.agent_id,
        thread_id=request.row.thread_id,
        input=(ApprovalInput(decisions=tuple(decisions), options=options),),
        request=replace(asked, stream_tokens=False),
        override_model=model.handle if model else None,
        kind=messages.ASYNC_KIND,
        background=True,
    )
    return await messages.send(services, actor, new)


def _load_request(tx: Transaction, actor: Actor, request_id: str) -> ApprovalRequest:
    try:
        row = tx.messages.get(actor.organization_id, request_id)
    except NotFound:
        raise _not_found(request_id) from None
    if row.role is not Role.APPROVAL or not row.tool_calls:
        raise _not_found(request_id)
    decisions = _load_decisions(tx, row, actor.organization_id)
    paused = tx.runs.find_paused(row.thread_id)
    calls = tuple(tx.calls.list_open(row.thread_id))
    if paused is not None and held_request_id(calls) == row.id:
        return ApprovalRequest(row=row, run=paused, decisions=decisions, open_calls=calls)
    return ApprovalRequest(row=row, decisions=decisions)


def _load_decisions(tx: Transaction, row: Message, organization_id: str) -> tuple[Decision, ...]:
    """In the order in which they were made; the last may be still under way: it is stored with its results."""
    # Before the rows: if it ends in between, those tell of it.
    under_way = find_answering_run(tx, row.thread_id, organization_id)
    recorded = _recorded_decisions(tx, [row])[row.id]
    return _first_decisions(row, [*recorded, *_decisions_in(under_way.input if under_way else ())])


def _recorded_decisions(
    tx: Transaction, requests: Sequence[Message]
) -> dict[str, tuple[Decision, ...]]:
    """By request. An answer belongs to the step that asked."""
    made: dict[str | None, list[Decision]] = {}
    for row in tx.messages.list_approval_messages(
        [row.step_id for row in requests if row.step_id is not None]
    ):
        made.setdefault(row.step_id, []).extend(row.decisions)
    return {row.id: _first_decisions(row, made.get(row.step_id, [])) for row in requests}


def _decisions_in(rows: Sequence[Message]) -> list[Decision]:
    return [decision for row in rows for decision in row.decisions]


def _first_decisions(request: Message, made: Sequence[Decision]) -> tuple[Decision, ...]:
    """Of each call the first: who repeats it decides nothing."""
    asked = {call.id for call in request.tool_calls}
    found: dict[str, Decision] = {}
    for decision in made:
        if decision.call_id in asked:
            found.setdefault(decision.call_id, decision)
    return tuple(found.values())


def _describe_decided(request: ApprovalRequest) -> str:
    decided = {item.call_id for item in request.decisions}
    left = [call.id for call in request.row.tool_calls if call.id not in decided]
    state = "waits for nobody any more"
    if left and decided:
        state = describe_partial_answer(left)
    words = [f"The request {request.row.id} {state}", *map(describe_decision, request.decisions)]
    return f"{'. '.join(words)}."


def _not_found(request_id: str) -> NotFound:
    return NotFound(f"Approval with ID {request_id} not found")
