"""Compacting a context on request (wire-v1 §7.9)."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from holdfast.core.messages import default_thread_id
from holdfast.core.runs import RunFailure
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.from_wire.model_settings import dump_sent_fields
from holdfast.http.letta_v1.parameters.conversations import ConversationName, thread_id
from holdfast.http.letta_v1.parameters.ids import AgentId
from holdfast.http.letta_v1.schemas.compaction import (
    CompactBody,
    CompactConversationBody,
    CompactionResponse,
)
from holdfast.http.letta_v1.sends import Sender, SenderDep, keep_from_sending_again
from holdfast.http.letta_v1.to_wire.errors import failure_response
from holdfast.usecases import agents, compaction, conversations
from holdfast.usecases.compaction import Compaction

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["messages"])


@router.post("/agents/{agent_id}/summarize", responses=describe_response(CompactionResponse))
async def summarize_agent(
    agent_id: AgentId,
    sender: SenderDep,
    body: Annotated[CompactBody | None, Body()] = None,
) -> Response:
    """Replace the oldest messages in the context of the agent's default thread by a summary. The history keeps them."""
    await agents.retrieve(sender.services, sender.actor, agent_id, ())
    thread = default_thread_id(agent_id)
    return await _compact(sender, thread, body or CompactBody(), may_be_empty=True)


@router.post(
    "/conversations/{conversation_id}/compact", responses=describe_response(CompactionResponse)
)
async def compact_conversation(
    conversation_id: ConversationName,
    sender: SenderDep,
    body: Annotated[CompactConversationBody | None, Body()] = None,
) -> Response:
    """Replace the oldest messages in the context of a conversation by a summary. The history keeps them."""
    options = body or CompactConversationBody()
    wanted = thread_id(conversation_id, options.agent_id)
    thread = await conversations.find(sender.services, sender.actor, wanted)
    return await _compact(sender, thread.id, options)


async def _compact(
    sender: Sender, thread: str, options: CompactBody, *, may_be_empty: bool = False
) -> Response:
    services, settings = sender.services, dump_sent_fields(options.compaction_settings)
    started = await sender.find_or_start(
        lambda: compaction.start(
            services, sender.actor, thread, settings, sender.key, may_be_empty=may_be_empty
        )
    )
    if isinstance(started, Compaction):
        return _show(started)
    with keep_from_sending_again(started):
        done = await compaction.wait(services, started)
        return failure_response(done, started.id) if isinstance(done, RunFailure) else _show(done)


def _show(done: Compaction) -> Response:
    shown = CompactionResponse(
        summary=done.summary,
        num_messages_before=done.messages_before,
        num_messages_after=done.messages_after,
    )
    return json_response(shown)
