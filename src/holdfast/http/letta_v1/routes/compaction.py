"""Compacting a context on request (wire-v1 §7.9)."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from holdfast.core.agents import Actor
from holdfast.core.messages import default_thread_id
from holdfast.core.runs import RunFailure
from holdfast.http.dependencies import ActorDep, ServicesDep
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
from holdfast.http.letta_v1.to_wire.errors import failure_response
from holdfast.ports.services import Services
from holdfast.usecases import agents, compaction, conversations

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["messages"])


@router.post("/agents/{agent_id}/summarize", responses=describe_response(CompactionResponse))
async def summarize_agent(
    agent_id: AgentId,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[CompactBody | None, Body()] = None,
) -> Response:
    """Replace the oldest messages in the context of the agent's default thread by a summary. The history keeps them."""
    await agents.retrieve(services, actor, agent_id, ())
    return await _compact(services, actor, default_thread_id(agent_id), body or CompactBody())


@router.post(
    "/conversations/{conversation_id}/compact", responses=describe_response(CompactionResponse)
)
async def compact_conversation(
    conversation_id: ConversationName,
    services: ServicesDep,
    actor: ActorDep,
    body: Annotated[CompactConversationBody | None, Body()] = None,
) -> Response:
    """Replace the oldest messages in the context of a conversation by a summary. The history keeps them."""
    options = body or CompactConversationBody()
    thread = await conversations.find(services, actor, thread_id(conversation_id, options.agent_id))
    return await _compact(services, actor, thread.id, options)


async def _compact(services: Services, actor: Actor, thread: str, options: CompactBody) -> Response:
    done = await compaction.compact(
        services, actor, thread, dump_sent_fields(options.compaction_settings)
    )
    if isinstance(done, RunFailure):
        return failure_response(done)
    shown = CompactionResponse(
        summary=done.summary,
        num_messages_before=done.messages_before,
        num_messages_after=done.messages_after,
    )
    return json_response(shown)
