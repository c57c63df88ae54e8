"""The inbox: the requests for approval of all agents and threads, and deciding one of them.

A request has the id of the row that asks (wire-v1 §6.2). ``approval_answers`` applies a decision.
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
from holdfast.core.runs import IdempotencyKey, Run
from holdfast.errors import Conflict, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import messages
from holdfast.usecases.approval_answers import AnswerOptions, find_answering_run
from holdfast.usecases.messages import ApprovalInput, NewSend


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A row that asks for decisions, and the decisions so far. ``run`` is the run that waits, while some are missing."""

    row: Message
    run: Run | None = None
    decisions: tuple[Decision, ...] = ()
    open_calls: tuple[OpenCall, ...] = ()

    @property
    def undecided_ids(self) -> list[str]:
        """The ids of the calls without a decision."""
        decided = {item.call_id for item in self.decisions}
        return [call.id for call in self.row.tool_calls if call.id not in decided]


class Inbox(Struct, frozen=True):
    """One page of requests."""

    requests: Sequence[Message]
    # Of all pages.
    count: int
    # By request, by thread and call, and by thread.
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
    request: ApprovalRequest,
    decisions: Sequence[Decision],
    *,
    partial: bool = False,
    key: IdempotencyKey | None = None,
) -> Run:
    """Answer the request. A new run continues the work in the background, with the settings of the run that waited.
    Conflict if the request was decided meanwhile; the error says by whom."""
    options = AnswerOptions(partial=partial, may_repeat=False)
    return await _answer(services, actor, request, decisions, options, key=key)


async def expire(services: Services, overdue: OverdueRequest) -> Run:
    """Answer the overdue calls of a request as their deadlines say. Conflict if they were decided meanwhile."""
    # No user acts here; only the organization is needed.
    actor = Actor(user_id="", organization_id=overdue.organization_id)
    request = await retrieve(services, actor, overdue.request_id)
    decisions = expiry_decisions(request.open_calls, services.clock.now())
    options = AnswerOptions(partial=True, may_repeat=False, is_expiry=True)
    return await _answer(services, actor, request, decisions, options)


async def _answer(
    services: Services,
    actor: Actor,
    request: ApprovalRequest,
    decisions: Sequence[Decision],
    options: AnswerOptions,
    *,
    key: IdempotencyKey | None = None,
) -> Run:
    if request.run is None or not decisions:
        raise Conflict(_describe_decided(request))
    settings = request.run.request
    model = settings.override_model
    new = NewSend(
        agent_id=request.row.agent_id,
        thread_id=request.row.thread_id,
        input=(ApprovalInput(decisions=tuple(decisions), options=options),),
        request=replace(settings, stream_tokens=False),
        override_model=model.handle if model else None,
        kind=messages.ASYNC_KIND,
        background=True,
        idempotency_key=key,
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
    """The decisions in their order, including those of a run that is executing them and has not stored them yet."""
    # The run is read before the rows: if it ends in between, the rows have its decisions.
    run = find_answering_run(tx, row.thread_id, organization_id)
    recorded = _recorded_decisions(tx, [row])[row.id]
    current = [decision for item in (run.input if run else ()) for decision in item.decisions]
    return _first_decisions(row, [*recorded, *current])


def _recorded_decisions(
    tx: Transaction, requests: Sequence[Message]
) -> dict[str, tuple[Decision, ...]]:
    """The stored decisions by request. A request and its answers have the same step."""
    made: dict[str | None, list[Decision]] = {}
    for row in tx.messages.list_approval_messages(
        [row.step_id for row in requests if row.step_id is not None]
    ):
        made.setdefault(row.step_id, []).extend(row.decisions)
    return {row.id: _first_decisions(row, made.get(row.step_id, [])) for row in requests}


def _first_decisions(request: Message, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The first decision on each call of the request: a repeated one has no effect."""
    call_ids = {call.id for call in request.tool_calls}
    found: dict[str, Decision] = {}
    for decision in decisions:
        if decision.call_id in call_ids:
            found.setdefault(decision.call_id, decision)
    return tuple(found.values())


def _describe_decided(request: ApprovalRequest) -> str:
    state = "does not wait for a decision any more"
    if request.undecided_ids and request.decisions:
        state = describe_partial_answer(request.undecided_ids)
    parts = [f"The request {request.row.id} {state}", *map(describe_decision, request.decisions)]
    return f"{'. '.join(parts)}."


def _not_found(request_id: str) -> NotFound:
    return NotFound(f"Approval with ID {request_id} not found")
