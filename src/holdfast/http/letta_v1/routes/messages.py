"""Sending messages to an agent, and reading messages (wire-v1 §2.3, §2.11)."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from holdfast.core import runs as core
from holdfast.core.ids import Kind
from holdfast.core.messages import Message
from holdfast.core.paging import Order, Page
from holdfast.errors import MethodRetired, PendingApproval
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import describe_response, json_response
from holdfast.http.letta_v1.from_wire.send import new_send, refuse_streaming_options
from holdfast.http.letta_v1.images import fetch_linked_images
from holdfast.http.letta_v1.parameters.conversations import agent_thread_id
from holdfast.http.letta_v1.parameters.ids import AgentId, MessageId
from holdfast.http.letta_v1.parameters.paging import paging
from holdfast.http.letta_v1.schemas.errors import Problem
from holdfast.http.letta_v1.schemas.messages import ApiMessage, LettaResponse
from holdfast.http.letta_v1.schemas.runs import Run
from holdfast.http.letta_v1.schemas.send import MessageTypes, SendBody
from holdfast.http.letta_v1.streams import STREAM_RESPONSES, stream_send, with_stream
from holdfast.http.letta_v1.to_wire.errors import failure_response
from holdfast.http.letta_v1.to_wire.messages import AssistantMessageTool, api_listing, api_messages
from holdfast.http.letta_v1.to_wire.replies import letta_response
from holdfast.http.letta_v1.to_wire.runs import api_run
from holdfast.ports.services import Services
from holdfast.usecases import messages

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["messages"])

HistoryPageDep = Annotated[Page, Depends(paging(Kind.MESSAGE, limit=100))]
ShownTypes = Annotated[
    MessageTypes | None, Query(description="Only these message types; all if not given.")
]

_PENDING_APPROVAL = "pending_approval"


@router.post("/agents/{agent_id}/messages", responses=with_stream(describe_response(LettaResponse)))
async def send_message(
    agent_id: AgentId, body: SendBody, services: ServicesDep, actor: ActorDep
) -> Response:
    """Send a message and wait for the end of the run, or stream it. The run goes on if the caller disconnects."""
    await fetch_linked_images(services, body)
    if body.streaming:
        new = new_send(agent_id, body, streaming=True)
        return await stream_send(services, actor, new, on_disconnect=body.on_disconnect)
    refuse_streaming_options(body)
    run = await messages.send(services, actor, new_send(agent_id, body))
    return await wait_for_answer(services, run)


async def wait_for_answer(services: Services, run: core.Run) -> Response:
    """Wait until the run has ended, and build the answer from its messages or its failure."""
    reply = await messages.wait(services, run)
    failure = reply.ended.failure
    if failure is None:
        return json_response(letta_response(reply))
    if failure.kind == _PENDING_APPROVAL:
        # The run before this one paused while this one waited for its turn.
        raise PendingApproval(failure.pending_request_id or "", failure.pending_calls)
    return failure_response(failure)


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
    include_return_message_types: ShownTypes = None,
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
    include_return_message_types: ShownTypes = None,
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
async def stream_message(
    agent_id: AgentId, body: SendBody, services: ServicesDep, actor: ActorDep
) -> Response:
    await fetch_linked_images(services, body)
    new = new_send(agent_id, body, kind="send_message_streaming", streaming=True)
    return await stream_send(services, actor, new, on_disconnect=body.on_disconnect)


@router.post("/agents/{agent_id}/messages/async", responses=describe_response(Run))
async def send_message_async(
    agent_id: AgentId, body: SendBody, services: ServicesDep, actor: ActorDep
) -> Response:
    """Send a message without waiting. Streaming options have no effect: those who read the run later give theirs."""
    await fetch_linked_images(services, body)
    new = new_send(agent_id, body, kind=messages.ASYNC_KIND, background=True)
    return json_response(api_run(await messages.send(services, actor, new)))


def show_oldest_first(rows: Sequence[Message], page: Page) -> Sequence[Message]:
    """``order`` only decides which rows are on the page: they are always shown oldest first (wire-v1 §1.10)."""
    return rows if page.order is Order.ASC else rows[::-1]
