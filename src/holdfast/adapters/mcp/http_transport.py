"""HTTP for the SDK's transports: the rule for addresses at each connect, limits, and failures that stay with their request.

The SDK ends the whole session when a request raises an exception, and hides the status of a refused one. So a failure is
noted (``Failures``) and becomes the JSON-RPC answer to its own request.
"""

import asyncio
import logging
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
import msgspec
from msgspec import Struct

from holdfast.adapters.mcp.failures import Failure, Failures, Kind
from holdfast.adapters.mcp.http_posts import LimitedBody, Post, describe
from holdfast.adapters.mcp.http_refusals import (
    RedirectRefused,
    RpcError,
    follow_redirect,
    judge_refusal,
    judge_status,
    read_start,
)
from holdfast.adapters.models.transport import StreamTransport
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_destination
from holdfast.errors import AddressForbidden, Undeliverable

# How long the server may take to answer a notification or the end of a session, which nobody waits for.
_COURTESY_SECONDS: Final = 3.0
# How long a cancelled request may stay open once the server knows; then it is told again, and then the request is ended.
_SETTLE_SECONDS: Final = 2.0
# How many answers to requests of the server may be on their way to it. Those of a server that reads none are dropped.
_MAX_ANSWERS: Final = 20
# A connection has one URL, and a redirect or two.
_MAX_ORIGINS: Final = 16
_MAX_REDIRECTS: Final = 5
_SESSION_HEADER: Final = "mcp-session-id"
_RESUMPTION_HEADER: Final = "last-event-id"
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

log = logging.getLogger(__name__)

# The request whose answer the task of the SDK reads.
_current: ContextVar[Post | None] = ContextVar("current", default=None)


class _CancelledParams(Struct):
    requestId: str | int | None = None  # noqa: N815 - as on the wire


class _Message(Struct):
    """What is needed of a JSON-RPC message."""

    method: str | None = None
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


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
        self._posts: dict[str | int, Post] = {}
        self._cancels: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            return await self._end_session(request)
        if request.method != "POST":
            return await self._listen(request)
        message = _parse(await request.aread())
        if message.method == "notifications/cancelled":
            return self._cancel(request, message)
        if message.method is None:
            return self._answer_server(request)
        if message.id is None:
            return await self._notify(request)
        return await self._request(request, message.id)

    async def aclose(self) -> None:
        tasks = self._cancels | self._answers
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_COURTESY_SECONDS)
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
        if isinstance(post, Post):
            post.check_before_sending()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, which is no redirect. The SDK would end the session if it cannot read where one leads to."""
        for _ in range(_MAX_REDIRECTS):
            response = await self._send_once(request)
            if not response.has_redirect_location:
                return response
            await read_start(response)
            request = follow_redirect(request, response)
        raise RedirectRefused(response, request.url)

    async def _send_once(self, request: httpx2.Request) -> httpx2.Response:
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
        post = self._begin_post(request_id)
        request.extensions = {**request.extensions, "post": post}
        try:
            async with post.wait_for_head():
                response = await self._send(request)
                return await self._read_head(request, response, post)
        except RedirectRefused as error:
            return self._refuse(request_id, Failure(Kind.REFUSED, str(error), status=error.status))
        except (*_FAILURES, TimeoutError) as error:
            kind = Kind.UNSENT if isinstance(error, _NEVER_SENT) or not post.is_sent else Kind.LOST
            return self._refuse(request_id, Failure(kind, describe(error)))
        except Exception as error:
            # One that leaves this would end the session of all other requests too.
            log.exception("mcp.request_failed")
            return self._refuse(request_id, Failure(Kind.LOST, type(error).__name__))

    def _begin_post(self, request_id: str | int) -> Post:
        post = self._posts[request_id] = Post(request_id)
        _current.set(post)

        def end(task: asyncio.Task[Any]) -> None:
            del task
            post.ended.set()
            if self._posts.get(request_id) is post:
                del self._posts[request_id]

        cast("asyncio.Task[Any]", asyncio.current_task()).add_done_callback(end)
        return post

    async def _read_head(
        self, request: httpx2.Request, response: httpx2.Response, post: Post
    ) -> httpx2.Response:
        status = response.status_code
        if status >= HTTPStatus.BAD_REQUEST:
            return await self._read_refusal(request, response, post)
        if self._is_sse:
            # Reading it to its end keeps the connection.
            await read_start(response)
            return httpx2.Response(_NO_JSON_ANSWER)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == _NO_JSON_ANSWER or kind not in {"application/json", "text/event-stream"}:
            await response.aclose()
            why = f"{status} with {kind or 'no content'} is no answer to a request"
            return self._refuse(post.request_id, Failure(Kind.LOST, why))
        return self._limit(response, post, is_stream=kind == "text/event-stream")

    def _limit(self, response: httpx2.Response, post: Post, *, is_stream: bool) -> httpx2.Response:
        def note(failure: Failure) -> None:
            self._failures.note(post.request_id, failure)

        stream = cast("httpx2.AsyncByteStream", response.stream)
        post.body = LimitedBody(stream, self._max_bytes, note, is_stream=is_stream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=post.body,
            extensions=response.extensions,
        )

    async def _read_refusal(
        self, request: httpx2.Request, response: httpx2.Response, post: Post
    ) -> httpx2.Response:
        body = await read_start(response)
        has_session = self._is_sse or _SESSION_HEADER in request.headers
        judged = judge_refusal(response, body, has_session=has_session)
        if isinstance(judged, Failure):
            return self._refuse(post.request_id, judged)
        if self._is_sse:
            # Nobody reads it here.
            return self._refuse(post.request_id, judge_status(response.status_code))
        return _answer(post.request_id, judged)

    def _refuse(self, request_id: str | int, failure: Failure) -> httpx2.Response:
        """The answer to this request alone. The SDK falls back to the older protocol after it, if it was its question."""
        self._failures.note(request_id, failure)
        return _answer(request_id, RpcError(-32000, failure.why))

    async def _listen(self, request: httpx2.Request) -> httpx2.Response:
        """The rest of an answer whose stream has ended, or everything that a server of the older transport says. What a server
        says outside of calls is of no use here, and the SDK would ask for it again and again."""
        if self._is_sse:
            return await self._send(request)
        post = _current.get()
        if post is None or _RESUMPTION_HEADER not in request.headers:
            return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED)
        async with post.wait_for_head():
            if not await post.wait_to_resume():
                return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED)
            response = await self._send(request)
        return self._limit(response, post, is_stream=True)

    def _answer_server(self, request: httpx2.Request) -> httpx2.Response:
        """In a task of its own: the SDK would keep everything else waiting until the server has taken it."""
        if len(self._answers) < _MAX_ANSWERS:
            _start(self._send_courtesy(request), "mcp-answer", self._answers)
        return httpx2.Response(_NO_JSON_ANSWER)

    async def _notify(self, request: httpx2.Request) -> httpx2.Response:
        await self._send_courtesy(request)
        return httpx2.Response(_NO_JSON_ANSWER)

    async def _end_session(self, request: httpx2.Request) -> httpx2.Response:
        await self._send_courtesy(request)
        return httpx2.Response(HTTPStatus.NO_CONTENT)

    async def _send_courtesy(self, request: httpx2.Request) -> None:
        """What nobody waits for. If it fails, the next request will show what is wrong."""
        with suppress(*_FAILURES, TimeoutError):
            async with asyncio.timeout(_COURTESY_SECONDS):
                await (await self._send(request)).aclose()

    def _cancel(self, request: httpx2.Request, message: _Message) -> httpx2.Response:
        """Tell the server in a task of its own: the SDK would keep all other requests waiting until it has answered."""
        cancelled = msgspec.json.decode(message.params, type=_CancelledParams).requestId
        post = self._posts.get(cancelled) if cancelled is not None else None
        if post is not None:
            post.is_cancelled = True
        if post is None or post.is_sent:
            _start(self._tell_of_cancel(request, post), "mcp-cancel", self._cancels)
        return httpx2.Response(_NO_JSON_ANSWER)

    async def _tell_of_cancel(self, request: httpx2.Request, post: Post | None) -> None:
        """A server may get this before the request, which came on another connection, so it is told twice."""
        for _ in range(2):
            await self._send_courtesy(request)
            if post is None:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await post.ended.wait()
                return
        if post is not None:
            await post.abort()


def _start(work: Coroutine[Any, Any, None], name: str, tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _answer(request_id: str | int, error: RpcError) -> httpx2.Response:
    answer = {"jsonrpc": "2.0", "id": request_id, "error": error}
    return httpx2.Response(HTTPStatus.OK, headers=_JSON, content=msgspec.json.encode(answer))


def _parse(body: bytes) -> _Message:
    try:
        return msgspec.json.decode(body, type=_Message)
    except msgspec.DecodeError:
        return _Message()
