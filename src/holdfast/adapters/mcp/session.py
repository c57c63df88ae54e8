"""A session with an MCP server: the SDK's client over one of its transports, and the two requests that are made of it.

Importing this module imports the SDK, which takes a second.
"""

import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from holdfast import __version__
from holdfast.adapters.mcp.failures import Failure, Failures, Kind, RequestFailed
from holdfast.adapters.mcp.http_transport import McpHttpTransport
from holdfast.adapters.mcp.results import fail, read_result
from holdfast.adapters.mcp.sse_transport import open_sse
from holdfast.adapters.mcp.watched_streams import watch_sending, watch_streams
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.core.mcp_servers import Endpoint, RemoteTool, Transport
from holdfast.ports.mcp import OnProgress, RemoteResult, ToolProgress

# What one server may list.
MAX_PAGES: Final = 1000
MAX_TOOLS: Final = 10_000

OpenStdio = Callable[[Endpoint], AbstractAsyncContextManager[TransportStreams]]

_EVERYWHERE: Final = parse_allowed(("0.0.0.0/0", "::/0"))
_CLIENT: Final = types.Implementation(name="holdfast", version=__version__)

# They write tracebacks about what servers send, and ids of sessions.
for _name in ("mcp.client", "mcp.shared", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


# The SDK's words for what it noticed itself.
_CLOSED: Final = "Connection closed"
_STREAM_FAILED: Final = "SSE stream "


class _RawResult(RootModel[dict[str, Any]]):
    """A result as it came: the SDK's own class would list all tools first, to compare it with the tool's schema."""


class Transports:
    """Opens the transport of an endpoint."""

    def __init__(
        self,
        allowed: AllowedAddresses,
        lookup: Lookup,
        *,
        open_stdio: OpenStdio,
        max_result_bytes: int,
        connect_seconds: float,
    ) -> None:
        # Loading certificates takes 20 ms.
        self._ssl_context: ssl.SSLContext = httpx2.create_ssl_context(trust_env=False)
        self._allowed = allowed
        self._lookup = lookup
        self._lookup_everywhere = Lookup(_EVERYWHERE)
        self._open_stdio = open_stdio
        self._max_result_bytes = max_result_bytes
        self._timeout = httpx2.Timeout(None, connect=connect_seconds)

    def open(
        self, endpoint: Endpoint, failures: Failures
    ) -> AbstractAsyncContextManager[TransportStreams]:
        if endpoint.transport is Transport.STDIO:
            return self._open_stdio(endpoint)
        return self._open_http(endpoint, failures)

    @asynccontextmanager
    async def _open_http(
        self, endpoint: Endpoint, failures: Failures
    ) -> AsyncIterator[TransportStreams]:
        is_sse = endpoint.transport is Transport.SSE
        url = endpoint.url or ""
        limit = self._max_result_bytes
        async with httpx2.AsyncClient(
            transport=McpHttpTransport(
                self._ssl_context,
                _EVERYWHERE if endpoint.is_trusted else self._allowed,
                self._lookup_everywhere if endpoint.is_trusted else self._lookup,
                failures,
                limit,
                is_sse=is_sse,
            ),
            headers=_build_headers(endpoint),
            timeout=self._timeout,
            trust_env=False,
        ) as http:
            streams = (
                open_sse(http, url, failures, limit)
                if is_sse
                else streamable_http_client(url, http_client=http, max_sse_event_size=limit)
            )
            async with streams as pair:
                yield pair


def _build_headers(endpoint: Endpoint) -> httpx2.Headers:
    headers = httpx2.Headers(
        {"User-Agent": f"holdfast/{__version__}", "Accept-Encoding": "identity"}
    )
    for name, value in endpoint.headers:
        headers[name] = value
    return headers


@asynccontextmanager
async def open_session(
    transports: Transports,
    endpoint: Endpoint,
    failures: Failures,
    *,
    is_modern: bool | None,
    on_lost: Callable[[], None],
) -> AsyncIterator["Session"]:
    """``is_modern``: the generation of the protocol that the server spoke before. None: find out. ``on_lost`` is called
    when the session cannot be used any more."""
    session = Session(failures, on_lost)
    streams = watch_streams(transports.open(endpoint, failures), session)
    mode = "legacy" if is_modern is False else "auto"
    async with Client(streams, mode=mode, cache=None, client_info=_CLIENT) as client:
        session.client = client
        try:
            yield session
        finally:
            # Leaving the SDK's contexts takes a while, and no call may begin meanwhile.
            session.is_lost = True


class Session:
    client: Client

    def __init__(self, failures: Failures, on_lost: Callable[[], None]) -> None:
        self._failures = failures
        self._on_lost = on_lost
        self.is_lost = False
        # How many messages the server has sent.
        self.received = 0

    @property
    def is_modern(self) -> bool:
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def mark_lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def note_end(self, why: str) -> None:
        self._failures.closing = why

    def note_message(self) -> None:
        self.received += 1

    async def list_tools(self) -> list[RemoteTool]:
        """All pages. Raises RequestFailed."""
        tools: list[RemoteTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._list_page(cursor)
            tools += map(_read_tool, page.tools)
            if page.next_cursor in {None, cursor} or len(tools) >= MAX_TOOLS:
                break
            cursor = page.next_cursor
        return tools[:MAX_TOOLS]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None
    ) -> RemoteResult:
        """Raises RequestFailed."""
        try:
            return await self._call(name, arguments, on_progress)
        except MCPError as error:
            return fail(error.message)
        except RequestFailed as error:
            if error.failure.kind is Kind.TOO_LARGE:
                return fail(error.failure.why)
            raise

    async def _call(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None
    ) -> RemoteResult:
        try:
            return await self._call_once(name, arguments, on_progress)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH or not self.is_modern:
                raise
        # The server wants some arguments as headers too, which its list says.
        await self.list_tools()
        return await self._call_once(name, arguments, on_progress)

    async def _list_page(self, cursor: str | None) -> types.ListToolsResult:
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        try:
            with self._translate():
                return await self.client.session.list_tools(params=params)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND:
                return types.ListToolsResult(tools=[])
            raise RequestFailed(Failure(Kind.REFUSED, error.message)) from error

    async def _call_once(
        self, name: str, arguments: Mapping[str, Any], on_progress: OnProgress | None
    ) -> RemoteResult:
        params = types.CallToolRequestParams(name=name, arguments=_replace_surrogates(arguments))

        async def pass_on(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(ToolProgress(progress, total, message))

        with self._translate():
            raw = await self.client.session.send_request(
                types.CallToolRequest(params=params),
                _RawResult,
                progress_callback=None if on_progress is None else pass_on,
            )
        return read_result(raw.root)

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """MCPError only if the server itself gave this error; everything else is a RequestFailed."""
        with watch_sending() as sending:
            try:
                yield
            except MCPError as error:
                noted = self._failures.take(sending.request_id)
                failure = self._explain(error, noted, was_sent=sending.was_sent)
                if failure is None:
                    raise
                raise RequestFailed(failure) from error
            except ValidationError as error:
                raise RequestFailed(Failure(Kind.LOST, _describe_invalid(error))) from error
            finally:
                self._failures.take(sending.request_id)

    def _explain(self, error: MCPError, noted: Failure | None, *, was_sent: bool) -> Failure | None:
        """None: the server's own words. They may come after a failure was noted, when an answer is asked for again."""
        if error.code == types.CONNECTION_CLOSED and error.message == _CLOSED:
            kind = Kind.LOST if was_sent else Kind.UNSENT
            return noted or Failure(kind, self._failures.closing)
        if noted is not None and error.message == noted.why:
            return noted
        if error.code == types.CONNECTION_CLOSED and error.message.startswith(_STREAM_FAILED):
            return noted or Failure(Kind.LOST, error.message)
        if error.code == types.PARSE_ERROR and error.message.startswith("Failed to parse "):
            return noted or Failure(Kind.LOST, "its answer is not valid JSON-RPC")
        return None


def _replace_surrogates(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """UTF-8 cannot encode lone surrogates; the SDK's HTTP transport would end with its attempt."""
    text = json.dumps(dict(arguments), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        replaced: dict[str, Any] = json.loads(text.encode("utf-8", "replace"))
        return replaced
    return dict(arguments)


def _read_tool(tool: types.Tool) -> RemoteTool:
    listing = tool.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return RemoteTool(
        name=tool.name,
        description=tool.description,
        input_schema=listing.get("inputSchema") or {},
        annotations=listing.get("annotations") or {},
        listing=listing,
    )


def _describe_invalid(error: ValidationError) -> str:
    """Without the value, which may be large."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"its answer is not valid MCP: {where}: {first['msg']}"
