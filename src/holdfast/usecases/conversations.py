"""Conversations: threads besides the agent's default one, each with its own context and queue of runs (wire-v1 §7.11).

Functions with a ``thread_id`` parameter also accept the default thread, whose id is its agent's id.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from holdfast import system_message
from holdfast.core.agents import Actor, Agent
from holdfast.core.blocks import Block
from holdfast.core.ids import Kind, is_id
from holdfast.core.lifecycle import LIVE
from holdfast.core.messages import Message, Role, Text
from holdfast.core.models import ModelSettings
from holdfast.core.paging import Order, Page
from holdfast.core.runs import Run, RunQuery
from holdfast.core.threads import Thread, ThreadQuery, shareable_messages
from holdfast.errors import InvalidArgument, NotFound
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import deletion, providers, runs
from holdfast.usecases.messages import Input


class _ConversationFields(Struct, frozen=True, kw_only=True):
    summary: str | None = None
    description: str | None = None
    model: str | None = None
    settings: ModelSettings | None = None
    model_settings: dict[str, Any] | None = None
    context_window_limit: int | None = None


# Fields that are copied unchanged from the input, or from the source of a fork, to the thread.
_COPIED_FIELDS = _ConversationFields.__struct_fields__


class NewConversation(_ConversationFields, frozen=True, kw_only=True):
    hidden: bool | None = None
    # Labels of the agent's blocks that are copied for this conversation alone.
    isolated_block_labels: tuple[str, ...] = ()


class ConversationChanges(_ConversationFields, frozen=True, kw_only=True):
    """The fields that an update sets; None leaves a field unchanged."""

    last_message_at: datetime | None = None
    archived: bool | None = None


class ConversationView(Struct, frozen=True):
    """A conversation with the ids of its context messages and its isolated blocks."""

    thread: Thread
    message_ids: tuple[str, ...] = ()
    isolated_block_ids: tuple[str, ...] = ()
    # One sentence for each model setting that has no effect.
    model_warnings: tuple[str, ...] = ()


async def create(
    services: Services, actor: Actor, agent_id: str, new: NewConversation
) -> ConversationView:
    await _check_model(services, actor, new)

    def work(tx: Transaction) -> ConversationView:
        agent = tx.agents.get(actor.organization_id, agent_id)
        thread = _build_thread(services, actor, agent)
        given = {name: getattr(new, name) for name in (*_COPIED_FIELDS, "hidden")}
        isolated = _find_blocks(tx, agent, new.isolated_block_labels)
        view = _store_conversation(tx, services, agent, replace(thread, **given), isolated)
        return replace(view, model_warnings=_model_warnings(services, agent, view.thread))

    return await services.store.write(work)


async def fork(
    services: Services, actor: Actor, thread_id: str, *, message_id: str | None, hidden: bool
) -> ConversationView:
    """Create a conversation that starts with the thread's current context, up to ``message_id`` if it is given.
    The messages are shared; the system message is compiled anew and isolated blocks are copied."""

    def work(tx: Transaction) -> ConversationView:
        source = _get_thread(tx, actor, thread_id)
        agent = tx.agents.get(actor.organization_id, source.agent_id)
        context = tx.messages.context(source.id)
        if message_id is not None and message_id not in {row.id for row in context}:
            raise NotFound(
                f"Message with ID {message_id} is not in the context of the conversation"
            )
        copied = {name: getattr(source, name) for name in _COPIED_FIELDS}
        thread = replace(_build_thread(services, actor, agent), hidden=hidden or None, **copied)
        view = _store_conversation(
            tx, services, agent, thread, tx.blocks.thread_blocks([source.id])[source.id]
        )
        shared = [row.id for row in shareable_messages(context, message_id)]
        tx.messages.share(source.id, thread.id, shared)
        message_ids = (*view.message_ids, *shared)
        tx.messages.set_context(thread.id, message_ids)
        return replace(view, message_ids=message_ids)

    return await services.store.write(work)


async def list_page(services: Services, actor: Actor, query: ThreadQuery) -> list[ConversationView]:
    """List conversations without their context messages (wire-v1 §9.2)."""

    def load(tx: Transaction) -> list[ConversationView]:
        found = tx.threads.list(actor.organization_id, query)
        own = tx.blocks.thread_blocks([thread.id for thread in found])
        return [ConversationView(thread, (), _block_ids(own[thread.id])) for thread in found]

    return await services.store.read(load)


async def find(services: Services, actor: Actor, thread_id: str) -> Thread:
    return await services.store.read(lambda tx: _get_thread(tx, actor, thread_id))


async def retrieve(services: Services, actor: Actor, conversation_id: str) -> ConversationView:
    def work(tx: Transaction) -> ConversationView:
        return _load_view(tx, services, _get_thread(tx, actor, conversation_id))

    return await services.store.read(work)


async def update(
    services: Services, actor: Actor, conversation_id: str, changes: ConversationChanges
) -> ConversationView:
    await _check_model(services, actor, changes)

    def work(tx: Transaction) -> ConversationView:
        now = services.clock.now()
        thread = _apply_changes(_get_thread(tx, actor, conversation_id), changes, now)
        thread = replace(thread, updated_at=now, last_updated_by_id=actor.user_id)
        tx.threads.save(thread)
        return _load_view(tx, services, thread)

    return await services.store.write(work)


async def delete(services: Services, actor: Actor, conversation_id: str) -> None:
    """Delete the conversation with its runs and messages. Messages that a fork shares stay with the fork."""
    thread = await find(services, actor, conversation_id)
    # Cancelled first so that readers of their streams get the final events. A run that does not stop in time is deleted anyway.
    live = await runs.list_cancellable(
        services, actor, agent_id=thread.agent_id, thread_id=thread.id
    )
    reason = "The conversation was deleted."
    await runs.cancel_all(services, actor, live, agent_id=thread.agent_id, reason=reason)
    await deletion.delete_history(services, actor, thread.agent_id, thread.id)
    now = services.clock.now()
    await services.store.write(lambda tx: tx.threads.delete(actor.organization_id, thread.id, now))


async def recompile(services: Services, actor: Actor, thread_id: str, *, dry_run: bool) -> str:
    """Compile the thread's system message again and return its text. A dry run does not store it."""

    def work(tx: Transaction) -> str:
        thread = _get_thread(tx, actor, thread_id)
        agent = tx.agents.get(actor.organization_id, thread.agent_id)
        if not dry_run:
            tx.stale_prompts.take(thread.id)
        text = system_message.compile_for_thread(tx, agent, thread.id, services.clock.now())
        for row in () if dry_run else system_message.load_stored(tx, [thread]):
            tx.messages.rewrite(replace(row, content=(Text(text),)))
        return text

    return await (services.store.read(work) if dry_run else services.store.write(work))


async def list_messages(
    services: Services, actor: Actor, conversation_id: str, page: Page
) -> Sequence[Message]:
    """A page of messages in sort order; the next page is ``after`` the last of them (wire-v1 §1.10)."""
    falling = page.order is Order.DESC
    # With ``before`` alone the rows nearest to the cursor are wanted, so the query runs in reverse order.
    backwards = page.before is not None and page.after is None
    newer, older = (page.before, page.after) if falling else (page.after, page.before)
    walk = Page(
        limit=page.limit,
        order=Order.DESC if falling is not backwards else Order.ASC,
        after=newer,
        before=older,
    )

    def load(tx: Transaction) -> Sequence[Message]:
        thread = _get_thread(tx, actor, conversation_id)
        return tx.messages.list(actor.organization_id, walk, thread_id=thread.id)

    rows = await services.store.read(load)
    return rows[::-1] if backwards else rows


async def find_resumable_run(
    services: Services, actor: Actor, thread_id: str, otid: str | None = None
) -> Run:
    """The run that was sent with this otid; without an otid the newest live run (wire-v1 §4.8)."""

    def load(tx: Transaction) -> Run:
        thread = _get_thread(tx, actor, thread_id)
        if otid is not None:
            run = tx.runs.find_by_otid(thread.id, otid)
            if run is None:
                raise NotFound(
                    f"No run found for otid={otid}. The run may have expired or never existed."
                )
            return run
        query = RunQuery(page=Page(limit=1), thread_id=thread.id, statuses=tuple(sorted(LIVE)))
        for run in tx.runs.list(actor.organization_id, query):
            return run
        raise InvalidArgument("No active runs found for this conversation.")

    return await services.store.read(load)


def request_key(items: Iterable[Input]) -> str | None:
    """A key that a request and its retry share, made from the otids that the sender chose; None without otids."""
    otids = sorted({item.otid for item in items if item.otid is not None})
    return hashlib.sha256(json.encode(otids)).hexdigest() if otids else None


async def _check_model(services: Services, actor: Actor, fields: _ConversationFields) -> None:
    """Refuse a handle that the catalogue does not know."""
    if fields.model is None:
        return
    catalogue = await providers.catalogue_for(services, actor, fields.model)
    await catalogue.prepare(fields.model, settings=fields.settings is not None)
    catalogue.find(fields.model, must_be_listed=True)


def _get_thread(tx: Transaction, actor: Actor, thread_id: str) -> Thread:
    if is_id(Kind.AGENT, thread_id):
        # The id is an agent's, so a "not found" error must name the agent.
        tx.agents.get(actor.organization_id, thread_id)
    return tx.threads.get(actor.organization_id, thread_id)


def _model_warnings(services: Services, agent: Agent, thread: Thread) -> tuple[str, ...]:
    if thread.model is None and thread.settings is None:
        return ()
    return services.catalogue.with_warnings(thread.choose_model(agent.model)).ignored


def _load_view(tx: Transaction, services: Services, thread: Thread) -> ConversationView:
    shown = tx.messages.context_ids([thread.id]).get(thread.id, ())
    own = _block_ids(tx.blocks.thread_blocks([thread.id])[thread.id])
    view = ConversationView(thread, tuple(shown), own)
    if thread.model is None and thread.settings is None:
        return view
    agent = tx.agents.get(thread.organization_id, thread.agent_id)
    return replace(view, model_warnings=_model_warnings(services, agent, thread))


def _block_ids(blocks: Sequence[Block]) -> tuple[str, ...]:
    return tuple(block.id for block in blocks)


def _find_blocks(tx: Transaction, agent: Agent, labels: Sequence[str]) -> list[Block]:
    """The agent's blocks with these labels, each once."""
    if not labels:
        return []
    held = {block.label: block for block in tx.agents.blocks([agent.id]).get(agent.id, ())}
    unknown = [label for label in labels if label not in held]
    if unknown:
        raise InvalidArgument(
            f"isolated_block_labels: no block with label '{unknown[0]}' found for agent '{agent.id}'"
        )
    return [held[label] for label in dict.fromkeys(labels)]


def _build_thread(services: Services, actor: Actor, agent: Agent) -> Thread:
    now = services.clock.now()
    return Thread(
        id=services.ids.new_id(Kind.CONVERSATION),
        organization_id=actor.organization_id,
        agent_id=agent.id,
        created_at=now,
        updated_at=now,
        created_by_id=actor.user_id,
        last_updated_by_id=actor.user_id,
    )


def _store_conversation(
    tx: Transaction, services: Services, agent: Agent, thread: Thread, isolated: Sequence[Block]
) -> ConversationView:
    """Store a new thread with copies of the isolated blocks and its compiled system message."""
    own = [_copy_block(services, thread, block) for block in isolated]
    text = system_message.compile_for_thread(tx, agent, thread.id, thread.created_at, own)
    system = Message(
        id=services.ids.new_id(Kind.MESSAGE),
        agent_id=agent.id,
        thread_id=thread.id,
        role=Role.SYSTEM,
        created_at=thread.created_at,
        content=(Text(text),),
        otid=services.ids.new_otid(),
    )
    tx.threads.add(thread)
    tx.blocks.add(*own)
    tx.messages.append([system])
    return ConversationView(thread, (system.id,), _block_ids(own))


def _copy_block(services: Services, thread: Thread, block: Block) -> Block:
    return replace(
        block,
        id=services.ids.new_id(Kind.BLOCK),
        thread_id=thread.id,
        created_at=thread.created_at,
        updated_at=thread.created_at,
        created_by_id=thread.created_by_id,
        last_updated_by_id=thread.created_by_id,
    )


def _apply_changes(thread: Thread, changes: ConversationChanges, now: datetime) -> Thread:
    if changes.model not in (None, thread.model):
        # Settings for the old model may be invalid for the new one.
        thread = replace(thread, settings=None, model_settings=None)
    given = {
        name: getattr(changes, name)
        for name in (*_COPIED_FIELDS, "last_message_at")
        if getattr(changes, name) is not None
    }
    thread = replace(thread, **given)
    if changes.archived is None:
        return thread
    return replace(thread, archived_at=(thread.archived_at or now) if changes.archived else None)
