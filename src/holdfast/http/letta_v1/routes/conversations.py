"""Conversations: the threads of an agent beside its default thread (wire-v1 §2.7)."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query, Response

from holdfast.core.ids import Kind, is_id
from holdfast.core.messages import conversation_id as conversation_of
from holdfast.core.paging import Page
from holdfast.core.threads import ThreadQuery
from holdfast.errors import Conflict, PendingApproval
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.conversations import (
    conversation_changes,
    new_conversation,
    new_send,
)
from holdfast.http.letta_v1.from_wire.runs import parse_cursor
from holdfast.http.letta_v1.from_wire.send import refuse_streaming_options
from holdfast.http.letta_v1.images import fetch_linked_images
from holdfast.http.letta_v1.parameters.conversations import ConversationName, thread_id
from holdfast.http.letta_v1.parameters.ids import ConversationId, check_run_id
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.routes.messages import (
    HistoryPageDep,
    ShownTypes,
    show_oldest_first,
)
from holdfast.http.letta_v1.schemas.cancel import Outcome
from holdfast.http.letta_v1.schemas.conversations import (
    ArchiveStatus,
    Conversation,
    ConversationCreate,
    ConversationResume,
    ConversationSend,
    ConversationTarget,
    ConversationUpdate,
)
from holdfast.http.letta_v1.schemas.messages import ApiMessage, LettaResponse
from holdfast.http.letta_v1.sends import SenderDep
from holdfast.http.letta_v1.streams import STREAM_RESPONSES, resume_stream, with_stream
from holdfast.http.letta_v1.to_wire.conversations import api_conversation
from holdfast.http.letta_v1.to_wire.messages import AssistantMessageTool, api_listing
from holdfast.http.letta_v1.to_wire.runs import cancel_outcomes
from holdfast.http.letta_v1.to_wire.unblock_hint import describe_error
from holdfast.usecases import conversations, messages, runs
from holdfast.usecases.messages import NewSend

router = APIRouter(prefix="/v1/conversations", route_class=JsonRoute, tags=["conversations"])

_SORT_COLUMNS = ("created_at", "last_run_completion", "last_message_at")
_ARCHIVE_FILTERS = {"unarchived": False, "archived": True, "all": None}

DirectAgentId = Annotated[
    str | None, Query(description="The agent, where the conversation is 'default'.")
]


@router.post("/", responses=describe_response(Conversation))
async def create_conversation(
    agent_id: Annotated[str, Query(description="Whose conversation it is.")],
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[ConversationCreate | None, Body()] = None,
) -> Response:
    """Create a conversation. It gets its own system message."""
    options = body or ConversationCreate()
    view = await conversations.create(services, actor, agent_id, new_conversation(options))
    return json_response(api_conversation(view))


@router.get("/", responses=describe_response(list[Conversation]))
async def list_conversations(
    *,
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, Depends(paging(Kind.CONVERSATION, limit=50, order_by=_SORT_COLUMNS))],
    agent_id: str | None = None,
    summary_search: Annotated[
        str | None, Query(max_length=1_000, description="A part of the summary.")
    ] = None,
    archive_status: ArchiveStatus = "unarchived",
) -> Response:
    """Conversations that are not hidden, without the ids of the messages in their contexts (wire-v1 §9.2)."""
    query = ThreadQuery(
        page=page,
        agent_id=agent_id,
        summary_search=summary_search,
        archived=_ARCHIVE_FILTERS[archive_status],
    )
    found = await conversations.list_page(services, actor, query)
    return await list_response(found, api_conversation)


@router.get("/{conversation_id}", responses=describe_response(Conversation))
async def retrieve_conversation(
    conversation_id: ConversationId, services: ServicesDep, actor: ActorDep
) -> Response:
    view = await conversations.retrieve(services, actor, conversation_id)
    return json_response(api_conversation(view))


@router.patch("/{conversation_id}", responses=describe_response(Conversation))
async def update_conversation(
    conversation_id: ConversationId,
    body: ConversationUpdate,
    services: ServicesDep,
    actor: ActorDep,
) -> Response:
    changes = conversation_changes(body)
    view = await conversations.update(services, actor, conversation_id, changes)
    return json_response(api_conversation(view))


@router.delete("/{conversation_id}", responses=describe_response(None))
async def delete_conversation(
    conversation_id: ConversationId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Delete the conversation with its runs and messages. Messages that a fork shares stay in the fork."""
    await conversations.delete(services, actor, conversation_id)
    return json_response(None)


@router.post("/{conversation_id}/messages", responses=with_stream(describe_response(LettaResponse)))
async def send_to_conversation(
    conversation_id: ConversationName, body: ConversationSend, sender: SenderDep
) -> Response:
    """Send a message and stream the run, or with ``streaming: false`` wait for its end."""

    async def prepare() -> NewSend:
        await fetch_linked_images(sender.services, body)
        wanted = thread_id(conversation_id, body.agent_id)
        thread = await conversations.find(sender.services, sender.actor, wanted)
        return new_send(thread, body)

    if body.streaming:
        return await sender.stream(prepare, on_disconnect=body.on_disconnect)
    refuse_streaming_options(body)
    try:
        return await sender.wait(prepare)
    except PendingApproval as error:
        # V1 has a body for this error only where a message is sent to an agent (wire-v1 §6.9).
        raise Conflict(describe_error(error), error.run_id) from error


@router.get("/{conversation_id}/messages", responses=describe_response(list[ApiMessage]))
async def list_conversation_messages(
    *,
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    page: HistoryPageDep,
    agent_id: DirectAgentId = None,
    group_id: str | None = None,
    include_return_message_types: ShownTypes = None,
) -> Response:
    """In sort order; but messages of the default thread oldest first, as in the agent's own list (wire-v1 §1.10)."""
    wanted = thread_id(conversation_id, agent_id)
    if is_id(Kind.CONVERSATION, wanted):
        rows = await conversations.list_messages(services, actor, wanted, page)
    else:
        found = await messages.list_page(services, actor, wanted, page, thread_id=wanted)
        rows = show_oldest_first(found, page)
    if group_id is not None:
        rows = [row for row in rows if row.group_id == group_id]
    return json_response(api_listing(rows, include_return_message_types, AssistantMessageTool()))


@router.post("/{conversation_id}/stream", responses=STREAM_RESPONSES)
async def stream_conversation(
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[ConversationResume | None, Body()] = None,
) -> Response:
    """Stream a run: the one with this run_id, the one that was sent this otid, or the newest that has not ended."""
    options = body or ConversationResume()
    after = parse_cursor(options.starting_after)
    if options.run_id is not None:
        run = await runs.retrieve(services, actor, check_run_id(options.run_id))
    else:
        wanted = thread_id(conversation_id, options.agent_id)
        run = await conversations.find_resumable_run(services, actor, wanted, options.otid)
    return resume_stream(services, run, after=after, include_pings=options.include_pings)


@router.post("/{conversation_id}/cancel", responses=describe_response(dict[str, Outcome]))
async def cancel_conversation(
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    agent_id: DirectAgentId = None,
) -> Response:
    """Cancel the active runs of the conversation; if it has none, the one that waits for an approval."""
    thread = await conversations.find(services, actor, thread_id(conversation_id, agent_id))
    found = await runs.list_cancellable(
        services, actor, agent_id=thread.agent_id, thread_id=thread.id
    )
    if not found:
        what = "conversation" if conversation_of(thread.id, thread.agent_id) else "agent"
        raise Conflict(f"No active runs to cancel for {what} {thread.id}")
    done = await runs.cancel_all(services, actor, found, agent_id=thread.agent_id)
    return json_response(cancel_outcomes(done))


@router.post("/{conversation_id}/fork", responses=describe_response(Conversation))
async def fork_conversation(
    *,
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    agent_id: DirectAgentId = None,
    hidden: Annotated[bool, Query(description="Not to be shown in lists.")] = False,
    message_id: Annotated[
        str | None, Query(description="The last message to share; all if not given.")
    ] = None,
) -> Response:
    """Create a conversation that shares the messages in this one's context. It gets a new system message."""
    wanted = thread_id(conversation_id, agent_id)
    view = await conversations.fork(services, actor, wanted, message_id=message_id, hidden=hidden)
    return json_response(api_conversation(view))


@router.post("/{conversation_id}/recompile", responses=describe_response(str))
async def recompile_conversation(
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[ConversationTarget | None, Body()] = None,
    dry_run: Annotated[bool, Query(description="Show the text, store nothing.")] = False,
) -> Response:
    """Compile the system message again from the prompt, the blocks and the tool rules."""
    wanted = thread_id(conversation_id, body.agent_id if body else None)
    return json_response(await conversations.recompile(services, actor, wanted, dry_run=dry_run))
