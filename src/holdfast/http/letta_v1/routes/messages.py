"""Sending messages to an agent, and reading messages (wire-v1 §2.3, §2.11)."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core.messages import Message
from holdfast.core.paging import Order, Page
from holdfast.errors import MethodRetired
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.from_wire.send import new_send, refuse_streaming_options
from holdfast.http.letta_v1.images import fetch_linked_images
from holdfast.http.letta_v1.parameters.conversations import agent_thread_id
from holdfast.http.letta_v1.parameters.ids import AgentId, MessageId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.errors import Problem
from holdfast.http.letta_v1.schemas.messages import ApiMessage, LettaResponse, MessageType
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.schemas.send import SendBody
from holdfast.http.letta_v1.sends import SenderDep
from holdfast.http.letta_v1.streams import STREAM_RESPONSES, with_stream
from holdfast.http.letta_v1.to_wire.messages import AssistantMessageTool, api_listing, api_messages
from holdfast.usecases import messages
from holdfast.usecases.messages import NewSend

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["messages"])

HistoryPageDep = Annotated[Page, Depends(paging(limit=100))]
MessageTypes = Annotated[
    list[MessageType] | None, Query(description="Only these message types; all if not given.")
]


@router.post("/agents/{agent_id}/messages", responses=with_stream(describe_response(LettaResponse)))
async def send_message(agent_id: AgentId, body: SendBody, sender: SenderDep) -> Response:
    """Send a message and wait for the end of the run, or stream it. The run goes on if the caller disconnects."""

    async def prepare() -> NewSend:
        await fetch_linked_images(sender.services, body)
        return new_send(agent_id, body, streaming=body.streaming)

    if body.streaming:
        return await sender.stream(prepare, on_disconnect=body.on_disconnect)
    refuse_streaming_options(body)
    return await sender.wait(prepare)


@router.get("/agents/{agent_id}/messages", responses=describe_response(list[ApiMessage]))
async def list_messages(
    *,
    agent_id: AgentId,
    services: ServicesDep,
    actor: ActorDep,
    page: HistoryPageDep,
    conversation_id: Annotated[
        str | None, Query(description="One thread; every thread of the agent if not given.")
    ] = None,
    group_id: str | None = None,
    include_return_message_types: MessageTypes = None,
    use_assistant_message: bool = True,
    assistant_message_tool_name: str = "send_message",
    assistant_message_tool_kwarg: str = "message",
) -> Response:
    thread_id = conversation_id and agent_thread_id(conversation_id, agent_id)
    rows = await messages.list_page(services, actor, agent_id, page, thread_id=thread_id)
    if group_id is not None:
        rows = [row for row in rows if row.group_id == group_id]
    message_tool = AssistantMessageTool(assistant_message_tool_name, assistant_message_tool_kwarg)
    return json_response(
        api_listing(
            show_oldest_first(rows, page),
            include_return_message_types,
            message_tool if use_assistant_message else None,
        )
    )


@router.patch("/agents/{agent_id}/messages/{message_id}", responses=describe_response(Problem, 405))
async def modify_message(agent_id: AgentId, message_id: MessageId) -> Response:
    del agent_id, message_id
    raise MethodRetired(
        "Message editing is no longer supported. Messages are immutable as they may be shared "
        "across multiple conversations via forking."
    )


@router.get("/messages/", responses=describe_response(list[ApiMessage]))
async def list_all_messages(
    services: ServicesDep,
    actor: ActorDep,
    page: HistoryPageDep,
    conversation_id: str | None = None,
    include_return_message_types: MessageTypes = None,
) -> Response:
    rows = await messages.list_all(services, actor, page, thread_id=conversation_id)
    shown = api_listing(
        show_oldest_first(rows, page), include_return_message_types, AssistantMessageTool()
    )
    return json_response(shown)


@router.get("/messages/{message_id}", responses=describe_response(list[ApiMessage]))
async def retrieve_message(
    message_id: MessageId, services: ServicesDep, actor: ActorDep
) -> Response:
    """All messages that V1 shows for one stored row."""
    return json_response(api_messages(await messages.retrieve(services, actor, message_id)))


@router.post("/agents/{agent_id}/messages/stream", responses=STREAM_RESPONSES)
async def stream_message(agent_id: AgentId, body: SendBody, sender: SenderDep) -> Response:
    async def prepare() -> NewSend:
        await fetch_linked_images(sender.services, body)
        return new_send(agent_id, body, kind="send_message_streaming", streaming=True)

    return await sender.stream(prepare, on_disconnect=body.on_disconnect)


@router.post("/agents/{agent_id}/messages/async", responses=describe_response(Run))
async def send_message_async(agent_id: AgentId, body: SendBody, sender: SenderDep) -> Response:
    """Send a message without waiting. Streaming options have no effect: those who read the run later give theirs."""

    async def prepare() -> NewSend:
        await fetch_linked_images(sender.services, body)
        return new_send(agent_id, body, kind=messages.ASYNC_KIND, background=True)

    return await sender.return_run(lambda: sender.send(prepare))


def show_oldest_first(rows: Sequence[Message], page: Page) -> Sequence[Message]:
    """``order`` only decides which rows are on the page: they are always shown oldest first (wire-v1 §1.10)."""
    return rows if page.order is Order.ASC else rows[::-1]
