"""Sending messages, waiting for the reply, reading the history."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor, Agent
from holdfast.core.approvals import pending_approval
from holdfast.core.events import MessageStored, RunEnded
from holdfast.core.ids import Kind
from holdfast.core.messages import (
    Decision,
    Message,
    Role,
    VisiblePart,
    decisions_by_call,
    default_thread_id,
)
from holdfast.core.models import ModelChoice, ModelSettings
from holdfast.core.paging import Page
from holdfast.core.runs import IdempotencyKey, Run, RunRequest, RunStatus
from holdfast.core.servers import Claimant
from holdfast.core.threads import Thread
from holdfast.errors import (
    AnswerUnavailable,
    CallerError,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    ServerStopping,
    StaleRun,
    StoreUnavailable,
    ThreadBusy,
)
from holdfast.ports.bell import run_topic
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import idempotency, providers
from holdfast.usecases.approval_answers import AnswerOptions, apply_answer

log = logging.getLogger(__name__)

# The run kind of a send without a waiting caller: errors are reported by its run (wire-v1 §6.9).
ASYNC_KIND = "send_message_async"
# The run kind of a send whose caller waits for the answer.
SEND_KIND = "send_message"

# How long a send tries to find out whether its run is stored, after a commit with an unknown outcome.
OUTCOME_CHECK_SECONDS = 10.0
OUTCOME_CHECK_PAUSE_SECONDS = 0.25


class MessageInput(Struct, frozen=True, kw_only=True):
    """A message to the agent."""

    role: Role
    content: tuple[VisiblePart, ...]
    otid: str | None = None
    name: str | None = None
    sender_id: str | None = None
    group_id: str | None = None


class ApprovalInput(Struct, frozen=True, kw_only=True):
    """Answers to held calls, which wait for a person's decision or for a result of the client."""

    decisions: tuple[Decision, ...]
    otid: str | None = None
    group_id: str | None = None
    options: AnswerOptions = AnswerOptions()


Input = MessageInput | ApprovalInput


class NewSend(Struct, frozen=True, kw_only=True):
    agent_id: str
    input: tuple[Input, ...]
    thread_id: str | None = None
    request: RunRequest = RunRequest()
    override_model: str | None = None
    kind: str = SEND_KIND
    background: bool = False
    # A retried request with the same key gets the run that the first one started: a key made of the otids of a request
    # to a conversation, and the key that the sender gave.
    request_key: str | None = None
    idempotency_key: IdempotencyKey | None = None


class Reply(Struct, frozen=True):
    """The messages that a run produced, without its input."""

    run: Run
    messages: tuple[Message, ...]
    ended: RunEnded


async def send(services: Services, actor: Actor, new: NewSend) -> Run:
    """Store a run and submit it to the engine. If the caller is cancelled meanwhile, both happen or neither does.
    Afterwards the caller only reads the run's events."""
    if new.request.callback_url is not None:
        services.outgoing.check(new.request.callback_url)
    if new.override_model is not None:
        await services.catalogue.prepare(new.override_model)
    run = _build_run(services, actor, new)
    if new.request.budget is not None and new.request.budget.cost is not None:
        await _refuse_unpriced(services, run, new)
    return await asyncio.shield(_submit(services, run, new))


async def _submit(services: Services, run: Run, new: NewSend) -> Run:
    try:
        claimant = services.dispatch.claimant(is_nested=bool(new.request.asked_by))
        stored = await _store(services, run, new, claimant)
    except OutcomeUnknown as error:
        # Should it be stored after all, the dispatch finds it.
        raise AnswerUnavailable(
            run.id,
            f"The database failed while the message was stored as the run {run.id}: {error} If there is no such run "
            "when the database answers again, the message was not stored.",
        ) from error
    if stored.id == run.id:
        log.debug("run.queued", extra={"run_id": run.id, "agent_id": run.agent_id})
        if services.dispatch.submit(stored):
            # Readers that come before the worker need not look into the store.
            services.events.open(run.id)
    return stored


async def find_earlier(services: Services, actor: Actor, key: IdempotencyKey) -> Run | None:
    """The run of an earlier request with this key, to be read like one that was just sent."""
    organization_id = actor.organization_id
    return await services.store.read(lambda tx: idempotency.find_run(tx, organization_id, key))


async def _store(services: Services, run: Run, new: NewSend, claimant: Claimant | None) -> Run:
    """Store the run, claimed by this server if it may be. If the outcome of the commit is unknown, store it again: its id tells whether it is there.
    OutcomeUnknown if the store does not answer within the time for this."""
    try:
        return await services.store.write(lambda tx: _store_once(tx, run, services, new, claimant))
    except OutcomeUnknown as error:
        log.warning("run.outcome_unknown", extra={"run_id": run.id, "why": str(error)})
    give_up_at = asyncio.get_running_loop().time() + OUTCOME_CHECK_SECONDS
    while True:
        try:
            return await _store_again(services, run, new, claimant)
        except StoreUnavailable as error:
            if asyncio.get_running_loop().time() >= give_up_at:
                raise OutcomeUnknown(str(error)) from error
            await asyncio.sleep(OUTCOME_CHECK_PAUSE_SECONDS)


async def _store_again(
    services: Services, run: Run, new: NewSend, claimant: Claimant | None
) -> Run:
    store = services.store
    try:
        return await store.write(
            lambda tx: tx.runs.find(run.id) or _store_once(tx, run, services, new, claimant)
        )
    except (CallerError, StaleRun):
        # The first commit may have come in between: then it is the reason why this one is refused.
        found = await store.read(lambda tx: tx.runs.find(run.id))
        if found is None:
            raise
        return found


async def wait(services: Services, run: Run) -> Reply:
    """Wait for the run's turn, then read its events to the end."""
    await wait_for_turn(services, run)
    messages: dict[str, Message] = {}
    async with aclosing(services.events.follow(run.id)) as batches:
        async for events in batches:
            for event in events:
                if isinstance(event.fact, MessageStored):
                    messages[event.fact.message.id] = event.fact.message
                elif isinstance(event.fact, RunEnded):
                    return Reply(run, tuple(messages.values()), event.fact)
    raise ServerStopping(run.id)


async def wait_for_turn(services: Services, run: Run) -> None:
    """Wait for the run's turn on its thread. If it does not come in time, withdraw the run (wire-v1 §7.11)."""
    try:
        async with asyncio.timeout(services.limits.busy_wait_seconds):
            await services.dispatch.wait_for_turn(run)
    except TimeoutError:
        await _withdraw(services, run)


async def _withdraw(services: Services, run: Run) -> None:
    """Delete a run that still waits for its turn and raise ThreadBusy; do nothing if its turn has just come. An answer
    to held calls is never withdrawn, since the calls belong to it. Only a compaction can run before it."""
    if run.is_answer:
        return

    def work(tx: Transaction) -> tuple[bool, str | None]:
        # Another request with the same idempotency key may have withdrawn it before.
        is_withdrawn = tx.runs.delete_if_waiting(run.id) or tx.runs.find(run.id) is None
        return is_withdrawn, tx.queue.find_holder(run.thread_id)

    try:
        is_withdrawn, holder = await services.store.write(work)
    except OutcomeUnknown as error:
        raise AnswerUnavailable(
            run.id,
            f"The run {run.id} of this message did not get its turn, and the database failed while it was withdrawn: "
            f"{error} If there is no such run when the database answers again, the message was not stored.",
        ) from error
    if is_withdrawn:
        # Another request with the same idempotency key may wait for it too.
        services.bell.ring(run_topic(run.id))
        raise ThreadBusy(holder)


async def list_page(
    services: Services, actor: Actor, agent_id: str, page: Page, *, thread_id: str | None
) -> Sequence[Message]:
    """A page of an agent's messages, in one of its threads or in all of them."""

    def load(tx: Transaction) -> Sequence[Message]:
        tx.agents.get(actor.organization_id, agent_id)
        return tx.messages.list(actor.organization_id, page, agent_id=agent_id, thread_id=thread_id)

    return await services.store.read(load)


async def retrieve(services: Services, actor: Actor, message_id: str) -> Message:
    return await services.store.read(lambda tx: tx.messages.get(actor.organization_id, message_id))


async def list_all(
    services: Services, actor: Actor, page: Page, *, thread_id: str | None
) -> Sequence[Message]:
    """A page of the messages of all agents."""
    return await services.store.read(
        lambda tx: tx.messages.list(actor.organization_id, page, thread_id=thread_id)
    )


async def _refuse_unpriced(services: Services, run: Run, new: NewSend) -> None:
    """Refuse a cost budget if the price of the model is not known."""

    handle = new.override_model

    def load(tx: Transaction) -> ModelChoice:
        current = _choose_model(tx, run, _get_agent(tx, run))
        if handle is None:
            return current
        return _override_choice(tx, services, current, run.organization_id, handle)

    choice = await services.store.read(load)
    if await services.prices.find(choice) is None:
        raise InvalidArgument(
            f"'max_cost' cannot be enforced: the price of {choice.handle} is not known. Use "
            "'max_total_tokens' instead."
        )


def _store_once(
    tx: Transaction, run: Run, services: Services, new: NewSend, claimant: Claimant | None
) -> Run:
    """Store the run, unless an earlier request with the same idempotency key has a run: return that one."""
    key = new.idempotency_key
    if key is None:
        return _store_run(tx, run, services, new, claimant)
    earlier = idempotency.find_run(tx, run.organization_id, key)
    if earlier is not None:
        return earlier
    stored = _store_run(tx, run, services, new, claimant)
    tx.runs.add_key(stored, key)
    return stored


def _store_run(
    tx: Transaction, run: Run, services: Services, new: NewSend, claimant: Claimant | None
) -> Run:
    agent = _get_agent(tx, run)
    choice = _choose_model(tx, run, agent)
    if run.thread_id != default_thread_id(agent.id):
        tx.threads.record_request(run.thread_id, run.created_at)
    if run.request_key is not None:
        started = tx.runs.find_by_request_key(run.thread_id, run.request_key)
        if started is not None:
            return started
    override = None
    if new.override_model is not None:
        override = _override_choice(tx, services, choice, run.organization_id, new.override_model)
    else:
        providers.find_catalogue(tx, services, run.organization_id, choice.handle).check(choice)
    if run.is_answer:
        options = next(item.options for item in new.input if isinstance(item, ApprovalInput))
        run = apply_answer(tx, run, override or choice, options)
    elif _is_blocked_by_approval(run) and tx.runs.find_paused(run.thread_id) is not None:
        decisions = decisions_by_call(tx.messages.context(run.thread_id))
        raise pending_approval(tx.calls.list_open(run.thread_id), decisions)
    request = replace(run.request, override_model=override)
    run = replace(
        run,
        request=request,
        project_id=agent.project_id,
        base_template_id=agent.base_template_id,
    )
    return tx.runs.add(run, claimant)


def _is_blocked_by_approval(run: Run) -> bool:
    """Compactions and async sends may be queued while the thread waits for an approval; other sends may not."""
    return run.kind != ASYNC_KIND and run.request.compaction is None


def _get_agent(tx: Transaction, run: Run) -> Agent:
    try:
        return tx.agents.get(run.organization_id, run.agent_id)
    except NotFound:
        raise NotFound("Agent not found") from None


def _get_thread(tx: Transaction, run: Run) -> Thread:
    thread = tx.threads.get(run.organization_id, run.thread_id)
    if thread.agent_id != run.agent_id:
        raise NotFound(f"Conversation with ID {run.thread_id} not found")
    return thread


def _choose_model(tx: Transaction, run: Run, agent: Agent) -> ModelChoice:
    """The model of the run's thread, without the override of the request."""
    if run.thread_id == default_thread_id(agent.id):
        return agent.model
    return _get_thread(tx, run).choose_model(agent.model)


def _override_choice(
    tx: Transaction, services: Services, current: ModelChoice, organization_id: str, handle: str
) -> ModelChoice:
    """The choice for a request with another model. The thread's settings are kept only for the same provider."""
    catalogue = providers.find_catalogue(tx, services, organization_id, handle)
    info = catalogue.find(handle)
    settings = current.settings
    if info.provider != current.provider:
        settings = ModelSettings(parallel_tool_calls=settings.parallel_tool_calls)
    choice = ModelChoice(handle=handle, context_window=info.context_window, settings=settings)
    return catalogue.with_warnings(choice)


def _build_run(services: Services, actor: Actor, new: NewSend) -> Run:
    now = services.clock.now()
    run_id = services.ids.new_id(Kind.RUN)
    thread_id = new.thread_id or default_thread_id(new.agent_id)
    blank = Message(
        id="",
        agent_id=new.agent_id,
        thread_id=thread_id,
        role=Role.APPROVAL,
        created_at=now,
        run_id=run_id,
    )
    return Run(
        id=run_id,
        organization_id=actor.organization_id,
        agent_id=new.agent_id,
        thread_id=thread_id,
        status=RunStatus.QUEUED,
        kind=new.kind,
        created_at=now,
        input=tuple(_build_message(services, actor, blank, item) for item in new.input),
        request=_complete_request(services, actor, new.request),
        background=new.background,
        request_key=new.request_key,
    )


def _complete_request(services: Services, actor: Actor, request: RunRequest) -> RunRequest:
    """The request with its sender, and with the current trace context, if there is one: its run joins the trace."""
    parent = services.telemetry.trace_parent() or request.trace_parent
    return replace(request, user_id=actor.user_id, trace_parent=parent)


def _build_message(services: Services, actor: Actor, blank: Message, item: Input) -> Message:
    row = replace(
        blank,
        id=services.ids.new_id(Kind.MESSAGE),
        otid=item.otid or services.ids.new_otid(),
        group_id=item.group_id,
    )
    if isinstance(item, ApprovalInput):
        decided_by_id = None if item.options.is_expiry else actor.user_id
        decisions = tuple(
            replace(decision, decided_by_id=decided_by_id, decided_at=blank.created_at)
            for decision in item.decisions
        )
        return replace(row, decisions=decisions)
    return replace(
        row, role=item.role, content=item.content, name=item.name, sender_id=item.sender_id
    )
