"""Searching messages (wire-v1 §2.3, §2.11)."""

import asyncio

from fastapi import APIRouter, Response

from holdfast.core.agents import Actor
from holdfast.errors import Unprocessable
from holdfast.http.body_warnings import add_warnings
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response, list_response
from holdfast.http.letta_v1.from_wire.message_search import message_filter
from holdfast.http.letta_v1.parameters.conversations import thread_id
from holdfast.http.letta_v1.schemas.message_search import (
    AgentMessageResult,
    AgentMessageSearchBody,
    MessageResult,
    MessageSearchBody,
    MessageSearchFields,
)
from holdfast.http.letta_v1.to_wire.message_search import agent_message_result, message_results
from holdfast.ports.services import Services
from holdfast.usecases import message_search
from holdfast.usecases.message_search import MessageSearch

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["messages"])


@router.post("/messages/search", responses=describe_response(list[MessageResult]))
async def search_messages(
    body: MessageSearchBody, services: ServicesDep, actor: ActorDep
) -> Response:
    """Find what was said, best first. A message with reasoning gives two items with its id."""
    if not body.query.strip():
        raise Unprocessable("query must not be blank.")
    result = await _search(services, actor, body, body.query)
    # On a thread, so that other requests are answered meanwhile: a message may be long.
    response = await asyncio.to_thread(
        lambda: json_response([part for item in result.found for part in message_results(item)])
    )
    return _with_warnings(response, result)


@router.post("/agents/messages/search", responses=describe_response(list[AgentMessageResult]))
async def search_agent_messages(
    body: AgentMessageSearchBody, services: ServicesDep, actor: ActorDep
) -> Response:
    """Find messages, best first, in their stored form and with their ranks. Without a query the newest ones."""
    result = await _search(services, actor, body, body.query or "")
    response = await list_response(result.found, agent_message_result)
    return _with_warnings(response, result)


async def _search(
    services: Services, actor: Actor, body: MessageSearchFields, query: str
) -> MessageSearch:
    name = body.conversation_id
    where = message_filter(body, name and thread_id(name, body.agent_id))
    return await message_search.search(
        services, actor, where, query, mode=body.search_mode, limit=body.limit
    )


def _with_warnings(response: Response, result: MessageSearch) -> Response:
    """The answer, with a warning for each part of the search that could not be used."""
    if result.unused:
        add_warnings(response, result.unused)
    return response
