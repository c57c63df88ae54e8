"""HTTP for the SDK's transports: the rule for addresses at each connect, limits, and failures that stay with their request.

The SDK ends the whole session when a request raises an exception, and hides the status of a refused one. So a failure is
noted (``Failures``) and becomes the JSON-RPC answer to its own request.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urljoin

import httpx2
import msgspec
from msgspec import Struct

from holdfast.adapters.mcp.failures import Failure, Failures, Kind
from holdfast.adapters.models.transport import StreamTransport
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_destination
from holdfast.core.mcp_addresses import show_address
from holdfast.errors import AddressForbidden, Undeliverable

# What is read of the body of a refusal.
_REFUSAL_BYTES: Final = 256 * 1024
# How long the server may take to answer a notification or the end of a session, which nobody waits for.
_COURTESY_SECONDS: Final = 3.0
# How long a cancelled request may stay open once the server knows; then it is told again, and then the stream is closed.
_SETTLE_SECONDS: Final = 2.0
# How long the end of a stream may take after the answer in it.
_DRAIN_SECONDS: Final = 0.5
# A connection has one URL, and a redirect or two.
_MAX_ORIGINS: Final = 16
_SESSION_HEADER: Final = "mcp-session-id"
_NO_JSON_ANSWER: Final = 202
_JSON: Final = {"content-type": "application/json"}

_FAILURES = (httpx2.TransportError, AddressForbidden, Undeliverable)
_NEVER_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.UnsupportedProtocol,
    AddressForbidden,
    Undeliverable,
)


class _CancelledParams(Struct):
    requestId: str | int | None = None  # noqa: N815 - as on the wire


class _Message(Struct):
    """What is needed of a JSON-RPC message."""

    method: str | None = None
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _RpcError(Struct):
    error: msgspec.Raw


class CancelledUnsent(httpx2.TransportError):
    """The request was cancelled before it was sent."""


class _Post:
    """A request in progress."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self.is_sent = False
        self.ended = asyncio.Event()
        self.body: _LimitedBody | None = None


class McpHttpTransport(StreamTransport):
    # A call must not be executed twice.
    resends = False

    def __init__(
        self,
        ssl_context: ssl.SSLContext,
        allowed: AllowedAddresses,
        lookup: Lookup,
        failures: Failures,
        max_bytes: int,
        *,
        is_sse: bool = False,
    ) -> None:
        """``is_sse``: answers arrive elsewhere, and a request is only accepted."""
        super().__init__(ssl_context)
        self._allowed = allowed
        self._lookup = lookup
        self._failures = failures
        self._max_bytes = max_bytes
        self._is_sse = is_sse
        # Of the URLs that were judged. Their addresses are judged at each connect.
        self._origins: dict[str, tuple[str, str, int]] = {}
        self._posts: dict[str | int, _Post] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            return await self._end_session(request)
        if request.method != "POST":
            return await self._send(request)
        message = _parse(await request.aread())
        if message.method == "notifications/cancelled":
            return self._cancel(request, message)
        if message.method is None or message.id is None:
            return await self._notify(request)
        return await self._request(request, message.id)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_COURTESY_SECONDS)
        await super().aclose()

    def find_origin(self, request: httpx2.Request) -> tuple[str, str, int]:
        url = str(request.url)
        if url not in self._origins:
            to = parse_destination(url, self._allowed)
            if len(self._origins) >= _MAX_ORIGINS:
                self._origins.clear()
            self._origins[url] = to.scheme, to.host, to.port
        return self._origins[url]

    async def find_addresses(self, host: str, port: int) -> Sequence[str]:
        return await self._lookup.find_addresses(host, port)

    def check_before_sending(self, request: httpx2.Request) -> None:
        post = request.extensions.get("post")
        if isinstance(post, _Post):
            if post.is_cancelled:
                raise CancelledUnsent("The request was cancelled.")
            post.is_sent = True

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            # What a compressed body grows to would have to be limited too.
            await response.aclose()
            raise httpx2.RemoteProtocolError(
                f"The answer is encoded ({encoding}), which was not asked for."
            )
        return response

    async def _request(self, request: httpx2.Request, request_id: str | int) -> httpx2.Response:
        self._failures.take(request_id)
        post = self._posts[request_id] = _Post()
        request.extensions = {**request.extensions, "post": post}
        try:
            response = await self._send(request)
            return await self._read_head(request, request_id, response, post)
        except _FAILURES as error:
            kind = Kind.UNSENT if isinstance(error, _NEVER_SENT) or not post.is_sent else Kind.LOST
            return self._refuse(request_id, Failure(kind, describe(error)))
        finally:
            if post.body is None:
                self._end_post(request_id, post)

    async def _read_head(
        self, request: httpx2.Request, request_id: str | int, response: httpx2.Response, post: _Post
    ) -> httpx2.Response:
        status = response.status_code
        if status >= HTTPStatus.BAD_REQUEST:
            return await self._read_refusal(request, request_id, response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.has_redirect_location:
            # The SDK follows it if it stays within the origin; then this note is replaced.
            target = urljoin(str(request.url), str(response.headers["location"]))
            self._failures.note(request_id, _refuse_redirect(status, target))
        elif self._is_sse:
            # Reading it to its end keeps the connection.
            await _read_start(response)
            return httpx2.Response(_NO_JSON_ANSWER)
        elif status == _NO_JSON_ANSWER or kind not in {"application/json", "text/event-stream"}:
            await response.aclose()
            why = f"{status} with {kind or 'no content'} is no answer to a request"
            return self._refuse(request_id, Failure(Kind.LOST, why))
        return self._limit(response, request_id, post, is_stream=kind == "text/event-stream")

    def _limit(
        self, response: httpx2.Response, request_id: str | int, post: _Post, *, is_stream: bool
    ) -> httpx2.Response:
        def note(failure: Failure) -> None:
            self._failures.note(request_id, failure)

        def end() -> None:
            self._end_post(request_id, post)

        stream = cast("httpx2.AsyncByteStream", response.stream)
        post.body = _LimitedBody(stream, self._max_bytes, note, end, is_stream=is_stream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=post.body,
            extensions=response.extensions,
        )

    async def _read_refusal(
        self, request: httpx2.Request, request_id: str | int, response: httpx2.Response
    ) -> httpx2.Response:
        body = await _read_start(response)
        status = response.status_code
        has_session = self._is_sse or _SESSION_HEADER in request.headers
        names_session = has_session and (
            status == HTTPStatus.NOT_FOUND
            or (status == HTTPStatus.BAD_REQUEST and b"session" in body.lower())
        )
        why = status_text(status)
        if names_session:
            return self._refuse(request_id, Failure(Kind.SESSION, why, status=status))
        if status == HTTPStatus.UNAUTHORIZED:
            challenge = response.headers.get("www-authenticate", "")
            return self._refuse(request_id, Failure(Kind.UNAUTHORIZED, why, challenge, status))
        if _is_rpc_error(body):
            return httpx2.Response(status, headers=_JSON, content=body)
        # After other errors of the server nobody knows what it did.
        has_begun = (
            status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.SERVICE_UNAVAILABLE
        )
        kind = Kind.LOST if has_begun else Kind.REFUSED
        return self._refuse(request_id, Failure(kind, why, status=status))

    def _refuse(self, request_id: str | int, failure: Failure) -> httpx2.Response:
        """The answer to this request alone. The SDK falls back to the older protocol after it, if it was its question."""
        self._failures.note(request_id, failure)
        error = {"code": -32000, "message": failure.why}
        answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
        return httpx2.Response(200, headers=_JSON, content=msgspec.json.encode(answer))

    def _end_post(self, request_id: str | int, post: _Post) -> None:
        post.ended.set()
        if self._posts.get(request_id) is post:
            del self._posts[request_id]

    async def _notify(self, request: httpx2.Request) -> httpx2.Response:
        """Notifications and answers to the server. If one fails, the next request will show what is wrong."""
        with suppress(*_FAILURES, TimeoutError):
            async with asyncio.timeout(_COURTESY_SECONDS):
                await (await self._send(request)).aclose()
        return httpx2.Response(_NO_JSON_ANSWER)

    async def _end_session(self, request: httpx2.Request) -> httpx2.Response:
        await self._notify(request)
        return httpx2.Response(HTTPStatus.NO_CONTENT)

    def _cancel(self, request: httpx2.Request, message: _Message) -> httpx2.Response:
        """Tell the server in a task of its own: the SDK would keep all other requests waiting until it has answered."""
        cancelled = msgspec.json.decode(message.params, type=_CancelledParams).requestId
        post = self._posts.get(cancelled) if cancelled is not None else None
        if post is not None:
            post.is_cancelled = True
        if post is None or post.is_sent:
            self._start(self._tell_of_cancel(request, post))
        return httpx2.Response(_NO_JSON_ANSWER)

    async def _tell_of_cancel(self, request: httpx2.Request, post: _Post | None) -> None:
        """A server may get this before the request, which came on another connection, so it is told twice."""
        for _ in range(2):
            await self._notify(request)
            if post is None:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await post.ended.wait()
                return
        if post is not None and post.body is not None:
            await post.body.abort()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="mcp-cancel")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _LimitedBody(httpx2.AsyncByteStream):
    """The body of an answer. Its errors are of the kinds that the SDK takes for an error of this request."""

    def __init__(
        self,
        body: httpx2.AsyncByteStream,
        max_bytes: int,
        note: Callable[[Failure], None],
        end: Callable[[], None],
        *,
        is_stream: bool,
    ) -> None:
        self._body = body
        self._max_bytes = max_bytes
        self._note = note
        self._end = end
        self._is_stream = is_stream
        self._is_aborted = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            async for piece in self._body:
                received += len(piece)
                if received > self._max_bytes:
                    why = f"The answer is larger than {self._max_bytes} bytes."
                    raise self._fail(Failure(Kind.TOO_LARGE, why), is_final=True)
                yield piece
        except httpx2.TransportError as error:
            was_aborted, self._is_aborted = self._is_aborted, True
            if isinstance(error, httpx2.SSEError):
                raise
            raise self._fail(Failure(Kind.LOST, describe(error)), is_final=was_aborted) from error
        except asyncio.CancelledError:
            self._is_aborted = True
            raise
        if self._is_stream:
            # With an answer in it, the SDK would have stopped reading.
            self._note(Failure(Kind.LOST, "the stream ended without an answer"))

    async def aclose(self) -> None:
        self._end()
        try:
            if self._is_stream and not self._is_aborted:
                await self._drain()
        finally:
            await self._body.aclose()

    async def _drain(self) -> None:
        """Read what follows the answer, the end of the stream: only then can the connection be used again."""
        with suppress(httpx2.TransportError, TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._body:
                    pass

    async def abort(self) -> None:
        self._is_aborted = True
        await self._body.aclose()

    def _fail(self, failure: Failure, *, is_final: bool) -> Exception:
        """``is_final``: the SDK must not ask for the rest of the stream."""
        self._note(failure)
        if self._is_stream:
            return httpx2.SSEError(failure.why) if is_final else httpx2.ReadError(failure.why)
        return httpx2.StreamError(failure.why)


def describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _parse(body: bytes) -> _Message:
    try:
        return msgspec.json.decode(body, type=_Message)
    except msgspec.DecodeError:
        return _Message()


def _refuse_redirect(status: int, target: str) -> Failure:
    # The path may be that of the server's own address, whoever named it.
    where = show_address(target, is_configured=True)
    return Failure(
        Kind.REFUSED, f"{status_text(status)}: redirect to {where} not followed", status=status
    )


def status_text(status: int) -> str:
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


def _is_rpc_error(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=_RpcError)
    except msgspec.DecodeError:
        return False
    return True


async def _read_start(response: httpx2.Response) -> bytes:
    received = bytearray()
    try:
        async with asyncio.timeout(_COURTESY_SECONDS):
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > _REFUSAL_BYTES:
                    break
    except (httpx2.TransportError, TimeoutError):
        # The status says enough.
        pass
    finally:
        await response.aclose()
    return bytes(received)
