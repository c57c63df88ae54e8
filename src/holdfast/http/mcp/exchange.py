"""One request of the protocol and its answer. Only for those who have loaded the SDK.

The SDK decides what a request means and what its answer looks like, in both generations of the protocol. Its HTTP is not
used: it would poll for the end of the process, and would cut off all answers when the server begins to stop rather than
when its runs have ended. Here an answer is JSON, or a stream if it takes long or says meanwhile what is being done. A
client that leaves ends only the reading.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types as types
from fastapi import Request, Response
from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
)
from mcp.shared.jsonrpc_dispatcher import (
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from holdfast.core.agents import Actor
from holdfast.core.mcp_headers import AGENT_HEADER
from holdfast.http.error_status import UNKNOWN_ERROR
from holdfast.http.json_response import json_response
from holdfast.http.mcp.caller import Caller
from holdfast.http.mcp.handlers import SERVER, log_failure
from holdfast.http.mcp.refusals import INVALID_REQUEST, refuse
from holdfast.http.sse import (
    KEEP_ALIVE_SECONDS,
    EventStream,
    cancel_tasks,
    encode_frames,
    receive_disconnect,
)
from holdfast.ports.services import Services

_INVALID: Final = refuse("The body must be one JSON-RPC request or notification.", INVALID_REQUEST)
# nginx's number for it.
_CLIENT_HAS_LEFT: Final = 499
_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A JSON-RPC message to the client; the last one is the answer, with its status."""

    body: Mapping[str, Any]
    status: int | None = None


async def answer(
    message: object, request: Request, services: Services, actor: Actor, *, may_stream: bool
) -> Response:
    headers = request.headers
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    if not isinstance(message, dict):
        return json_response(_INVALID, 400)
    if "id" not in message or (not is_modern and "method" not in message):
        return _acknowledge(message, version if is_modern else None)
    try:
        rpc = types.JSONRPCRequest.model_validate(message)
    except ValidationError:
        return json_response(_INVALID, 400)
    connection: Connection | InboundLadderRejection = Connection.from_envelope(
        version or types.DEFAULT_NEGOTIATED_VERSION, None, None
    )
    if is_modern:
        connection = _open_modern(message, headers)
    if isinstance(connection, InboundLadderRejection):
        return _reject(connection, rpc.id)
    exchange = Exchange(rpc, connection, may_stream=may_stream, is_modern=is_modern)
    caller = Caller(
        services=services,
        actor=actor,
        is_agent=AGENT_HEADER in headers,
        report=exchange.report,
    )
    return await exchange.respond(caller, request.receive)


def _acknowledge(message: Mapping[str, Any], modern_version: str | None) -> Response:
    """Notifications say nothing that would matter here: there are no sessions, and a run is cancelled by its tool. Clients
    of the first generation may also answer questions, which are never asked."""
    known = (types.JSONRPCNotification, types.JSONRPCResponse, types.JSONRPCError)
    try:
        kind = known[0] if "id" not in message else known[1 if "result" in message else 2]
        kind.model_validate(message)
    except ValidationError:
        return json_response(_INVALID, 400)
    if modern_version is not None:
        rejection = unsupported_protocol_version_rejection(modern_version)
        if rejection is not None:
            return _reject(rejection, None)
    return Response(status_code=202)


def _open_modern(
    message: Mapping[str, Any], headers: Headers
) -> Connection | InboundLadderRejection:
    duplicate = find_duplicated_routing_header(headers.items())
    if duplicate is not None:
        return InboundLadderRejection(
            code=types.HEADER_MISMATCH, message=f"{duplicate} header appears more than once"
        )
    route = classify_inbound_request(message, headers=dict(headers))
    if isinstance(route, InboundLadderRejection):
        return route
    return Connection.from_envelope(
        route.protocol_version, route.client_info, route.client_capabilities
    )


def _reject(rejection: InboundLadderRejection, request_id: types.RequestId | None) -> Response:
    fault = types.ErrorData(code=rejection.code, message=rejection.message, data=rejection.data)
    return json_response(
        _error_body(request_id, fault), ERROR_CODE_HTTP_STATUS.get(rejection.code, 400)
    )


def _error_body(request_id: types.RequestId | None, fault: types.ErrorData) -> dict[str, Any]:
    error = fault.model_dump(mode="json", exclude_none=True)
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


class Exchange:
    """A request while it is answered. To the SDK it is the ``DispatchContext``, by which handlers reach the client."""

    transport = _TRANSPORT
    # The client cannot be asked anything: it would answer to any server.
    can_send_request = False
    message_metadata = None

    def __init__(
        self,
        request: types.JSONRPCRequest,
        connection: Connection,
        *,
        may_stream: bool,
        is_modern: bool,
    ) -> None:
        self._request = request
        self._connection = connection
        self._may_stream = may_stream
        self._is_modern = is_modern
        self._progress_token = progress_token_from_params(request.params)
        self._reports = 0
        # A frame waits here for the client to take it.
        self._frames: asyncio.Queue[Frame] = asyncio.Queue(1)
        self.request_id = request.id
        self.cancel_requested = anyio.Event()

    async def respond(self, caller: Caller, receive: Receive) -> Response:
        """JSON if the answer is the first frame and comes soon, else a stream. If the client leaves before, the handling
        ends."""
        handling = asyncio.create_task(self._handle(caller), name="mcp")
        try:
            first = await self._wait_with_client(receive)
        except ClientDisconnect:
            handling.cancel()
            # Nobody reads it, but it is counted.
            return Response(status_code=_CLIENT_HAS_LEFT)
        except BaseException:
            handling.cancel()
            raise
        if first is not None and first.status is not None:
            return json_response(first.body, first.status)
        return _AnswerStream(self._chunks(first), handling)

    async def _wait_with_client(self, receive: Receive) -> Frame | None:
        """Like ``_wait_for_frame``. ClientDisconnect if the client leaves meanwhile."""
        waiting = asyncio.create_task(self._wait_for_frame())
        watching = asyncio.create_task(receive_disconnect(receive))
        try:
            await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientDisconnect
        finally:
            await cancel_tasks(waiting, watching)
        return waiting.result()

    async def _wait_for_frame(self) -> Frame | None:
        """The first frame; None if it takes longer than a connection should be silent."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS if self._may_stream else None):
                return await self._frames.get()
        except TimeoutError:
            return None

    async def _chunks(self, first: Frame | None) -> AsyncGenerator[bytes, None]:
        frame = first or await self._frames.get()
        while frame.status is None:
            yield encode_frames([frame.body])
            frame = await self._frames.get()
        yield encode_frames([frame.body])

    async def _handle(self, caller: Caller) -> None:
        request = self._request
        try:
            result = await serve_one(
                SERVER,
                self,
                request.method,
                request.params,
                connection=self._connection,
                lifespan_state=caller,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the client waits for an answer
            fault = handler_exception_to_error_data(error)
            if fault is None:
                log_failure(error)
                fault = types.ErrorData(code=types.INTERNAL_ERROR, message=UNKNOWN_ERROR)
            status = ERROR_CODE_HTTP_STATUS.get(fault.code, 200) if self._is_modern else 200
            answer = Frame(body=_error_body(request.id, fault), status=status)
        else:
            body = {"jsonrpc": "2.0", "id": request.id, "result": result}
            answer = Frame(body=body, status=200)
        await self._frames.put(answer)

    async def report(self, text: str) -> None:
        self._reports += 1
        await self.progress(self._reports, message=text)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        if self._progress_token is None:
            return
        values = {
            "progressToken": self._progress_token,
            "progress": progress,
            "total": total,
            "message": message,
        }
        present = {name: value for name, value in values.items() if value is not None}
        await self.notify("notifications/progress", present)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        del opts
        if self._may_stream:
            body = {"jsonrpc": "2.0", "method": method, "params": params or {}}
            await self._frames.put(Frame(body=body))

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        del params, opts
        raise NoBackChannelError(method)


class _AnswerStream(EventStream):
    """The frames of an exchange, whose handling ends when nobody reads them any more."""

    def __init__(self, chunks: AsyncGenerator[bytes, None], handling: asyncio.Task[None]) -> None:
        super().__init__(chunks)
        self._handling = handling

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._handling.cancel()
