"""Messages from one agent to another. An agent sends like any other caller, and may wait for the answer.

Agents cannot wait for each other in a cycle: each run stores which agents wait for it, and an agent in that chain
is refused as a recipient. A thread that is busy for another reason is waited for as long as any caller waits. A message
cannot be passed on without end: each run stores the number of agents it came through, and the number is bounded.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from msgspec import Struct

from holdfast.core.agents import Actor, AgentQuery
from holdfast.core.messages import Message, Role, Text, sent_texts
from holdfast.core.paging import Page
from holdfast.core.runs import Run, RunRequest, StopReason
from holdfast.errors import CallerError, Conflict, HoldfastError, InvalidArgument
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import messages, runs
from holdfast.usecases.messages import MessageInput, NewSend, Reply

# How many agents one request by tags may ask, and how many of them concurrently.
MAX_RECIPIENTS = 50
MAX_CONCURRENT = 8
MAX_CANDIDATES = 1_000
# How many times a message may be passed on from agent to agent.
MAX_HOPS = 10


class Sender(Struct, frozen=True, kw_only=True):
    """The sending agent, the agents that wait for its answer, and how many agents its own message came through."""

    actor: Actor
    agent_id: str
    waiting_agent_ids: tuple[str, ...] = ()
    hops: int = 0


async def load_sender(
    services: Services, actor: Actor, agent_id: str, run_id: str | None
) -> Sender:
    if run_id is None:
        return Sender(actor=actor, agent_id=agent_id)
    request = (await runs.retrieve(services, actor, run_id)).request
    return Sender(
        actor=actor, agent_id=agent_id, waiting_agent_ids=request.asked_by, hops=request.relayed
    )


async def send(services: Services, sender: Sender, agent_id: str, text: str) -> Run:
    """Send without waiting for an answer."""
    return await _start_run(services, sender, agent_id, text, kind=messages.ASYNC_KIND)


async def ask(
    services: Services, sender: Sender, agent_id: str, text: str, timeout_seconds: float
) -> str:
    """Send and return the other agent's answer. Its run is cancelled on timeout and when the caller is cancelled."""
    chain = (*sender.waiting_agent_ids, sender.agent_id)
    if agent_id in chain:
        raise Conflict(f"The agent {agent_id} waits for your answer and cannot be asked now.")
    sending = asyncio.ensure_future(
        _start_run(services, sender, agent_id, text, kind=messages.SEND_KIND, asked_by=chain)
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            return _reply_text(await messages.wait(services, await asyncio.shield(sending)))
    except TimeoutError:
        await _cancel_run(services, sender, sending, f"no answer within {timeout_seconds:g} s")
        raise Conflict(
            f"The agent {agent_id} did not answer within {timeout_seconds:g} s."
        ) from None
    except asyncio.CancelledError:
        why = f"{sender.agent_id} no longer waits"
        await asyncio.shield(_cancel_run(services, sender, sending, why))
        raise


async def ask_matching(
    services: Services,
    sender: Sender,
    text: str,
    *,
    match_all: tuple[str, ...],
    match_some: tuple[str, ...],
    timeout_seconds: float,
) -> dict[str, str]:
    """Ask all agents with these tags. Each value is the answer or the error; the timeout is for all together."""
    semaphore = asyncio.Semaphore(MAX_CONCURRENT)
    clock = asyncio.get_running_loop()
    deadline = clock.time() + timeout_seconds

    async def answer(agent_id: str) -> str:
        async with semaphore:
            try:
                return await ask(
                    services, sender, agent_id, text, max(deadline - clock.time(), 0.0)
                )
            except CallerError as error:
                return f"Error: {error}"

    found = await _find_matching(services, sender, match_all, match_some)
    async with asyncio.TaskGroup() as group:
        tasks = {agent_id: group.create_task(answer(agent_id)) for agent_id in found}
    return {agent_id: task.result() for agent_id, task in tasks.items()}


async def _find_matching(
    services: Services, sender: Sender, match_all: tuple[str, ...], match_some: tuple[str, ...]
) -> list[str]:
    if not match_all and not match_some:
        raise InvalidArgument("Name at least one tag in match_all or match_some.")
    query = AgentQuery(
        page=Page(limit=MAX_CANDIDATES),
        tags=match_all or match_some,
        match_all_tags=bool(match_all),
    )
    organization = sender.actor.organization_id

    def load(tx: Transaction) -> list[str]:
        agents = [agent.id for agent in tx.agents.list(organization, query)]
        tags = tx.agents.tags(agents)
        return [
            agent_id
            for agent_id in agents
            if agent_id != sender.agent_id
            and (not match_some or set(match_some) & set(tags.get(agent_id, ())))
        ]

    found = await services.store.read(load)
    if len(found) > MAX_RECIPIENTS:
        raise InvalidArgument(
            f"{len(found)} agents have these tags; at most {MAX_RECIPIENTS} can be asked at once."
        )
    return found


async def _start_run(
    services: Services,
    sender: Sender,
    agent_id: str,
    text: str,
    *,
    kind: str,
    asked_by: tuple[str, ...] = (),
) -> Run:
    if sender.hops >= MAX_HOPS:
        raise Conflict(
            f"This message has come through {sender.hops} agents already and is not passed on any further."
        )
    request = RunRequest(asked_by=asked_by, relayed=sender.hops + 1)
    message = MessageInput(role=Role.USER, content=(Text(_with_introduction(sender, text)),))
    new = NewSend(
        agent_id=agent_id,
        input=(message,),
        request=request,
        kind=kind,
        background=kind == messages.ASYNC_KIND,
    )
    return await messages.send(services, sender.actor, new)


def _with_introduction(sender: Sender, text: str) -> str:
    return f"[Message from the agent {sender.agent_id}]\n{text}"


async def _cancel_run(
    services: Services, sender: Sender, sending: "asyncio.Future[Run]", reason: str
) -> None:
    """Cancel the run once it has been stored. A run that could not be stored needs no cancel."""
    with contextlib.suppress(HoldfastError):
        run = await sending
        await runs.cancel(services, sender.actor, run.id, reason=reason)


def _reply_text(reply: Reply) -> str:
    if reply.ended.stop_reason is StopReason.REQUIRES_APPROVAL:
        raise Conflict(
            f"The agent {reply.run.agent_id} wants to call a tool and waits for a person's approval. "
            "Its answer is not there yet."
        )
    if reply.ended.failure is not None:
        raise Conflict(f"The agent {reply.run.agent_id} failed: {reply.ended.failure.message}")
    texts = [text for row in reply.messages for text in _message_texts(row) if text]
    return "\n".join(texts) or f"The agent {reply.run.agent_id} ended its turn without an answer."


def _message_texts(row: Message) -> Iterator[str]:
    """The texts of a message. Older agent types put their text into calls of the send_message tool."""
    if row.role is not Role.ASSISTANT:
        return
    yield row.text
    yield from sent_texts(row)
