"""The older HTTP transport: answers arrive on one stream of events, and messages are posted to an address that it names.

The SDK has one too, but in it no event may be larger than 1 MiB, and one message that cannot be posted ends the session.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared._httpx_utils import request_within_origin, sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from holdfast.adapters.mcp.failures import Failure, Failures, Kind, RequestFailed
from holdfast.adapters.mcp.http_posts import describe
from holdfast.adapters.mcp.http_refusals import status_text

_Writer = MemoryObjectSendStream[SessionMessage | Exception]


@asynccontextmanager
async def open_sse(
    client: httpx2.AsyncClient, url: str, failures: Failures, max_event_bytes: int
) -> AsyncIterator[TransportStreams]:
    read_writer, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, write_reader = anyio.create_memory_object_stream[SessionMessage](0)
    async with (
        sse_within_origin(client, url, max_event_size=max_event_bytes) as events,
        read_writer,
        read,
        write,
        write_reader,
    ):
        _check_status(events.response)
        async with anyio.create_task_group() as tasks:
            address = await tasks.start(_read_events, events, url, failures, read_writer)
            tasks.start_soon(_post_messages, client, address, failures, write_reader, read_writer)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()


def _check_status(response: httpx2.Response) -> None:
    status = response.status_code
    if status == HTTPStatus.UNAUTHORIZED:
        challenge = response.headers.get("www-authenticate", "")
        raise RequestFailed(Failure(Kind.UNAUTHORIZED, status_text(status), challenge, status))
    if status != HTTPStatus.OK:
        raise RequestFailed(Failure(Kind.REFUSED, status_text(status), status=status))


async def _read_events(
    events: httpx2.EventSource,
    url: str,
    failures: Failures,
    writer: _Writer,
    *,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    has_address = False
    async with writer:
        try:
            async for event in events:
                if event.event == "endpoint" and not has_address:
                    has_address = True
                    task_status.started(_join_address(url, event.data))
                elif event.event == "message" and event.data:
                    await _pass_on(event.data, writer)
        except httpx2.TransportError as error:
            if not has_address:
                raise RequestFailed(Failure(Kind.UNSENT, describe(error))) from error
            # The end of the stream is the end of the session, which its reader sees.
            failures.closing = describe(error)
        if not has_address:
            why = "the stream of events named no address for messages"
            raise RequestFailed(Failure(Kind.UNSENT, why))


def _join_address(url: str, named: str) -> str:
    address = urljoin(url, named)
    if urlsplit(address)[:2] != urlsplit(url)[:2]:
        why = "the address for messages is on another server"
        raise RequestFailed(Failure(Kind.UNSENT, why))
    return address


async def _pass_on(data: str, writer: _Writer) -> None:
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        await writer.send(error)
    else:
        await writer.send(SessionMessage(message))


async def _post_messages(
    client: httpx2.AsyncClient,
    address: str,
    failures: Failures,
    messages: MemoryObjectReceiveStream[SessionMessage],
    answers: _Writer,
) -> None:
    async def post(item: SessionMessage) -> None:
        message = item.message
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        await request_within_origin(client, "POST", address, json=body)
        if isinstance(message, JSONRPCRequest) and (failure := failures.find(message.id)):
            error = ErrorData(code=CONNECTION_CLOSED, message=failure.why)
            await answers.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            )

    async with anyio.create_task_group() as tasks:
        async for item in messages:
            if isinstance(item.message, JSONRPCRequest):
                tasks.start_soon(post, item)
            else:
                await post(item)
