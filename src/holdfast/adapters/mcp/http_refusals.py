"""What a server means when it refuses a request over HTTP: its status, the body of its answer, and where it redirects to."""

import asyncio
import re
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Literal

import httpx2
import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.adapters.mcp.failures import Failure, Kind
from holdfast.core.mcp_addresses import show_address

# What is read of the body of a refusal, and for how long.
_MAX_BODY_BYTES: Final = 256 * 1024
_BODY_SECONDS: Final = 3.0
_MAX_LOCATION_CHARS: Final = 200

_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602
# Of the SDK for TypeScript, and of those that follow it.
_SESSION_NOT_FOUND: Final = -32001
# How servers say that they do not know a session. Words about something else that is called a session must not match.
_NAMES_SESSION: Final = re.compile(
    r"session[ -]id|(?:no valid|invalid|unknown|missing|expired) session"
    r"|session (?:was )?(?:not found|has expired|expired|does not exist|terminated)",
    re.IGNORECASE,
)


class RpcError(Struct):
    """The error of a JSON-RPC answer."""

    code: int
    message: str
    data: msgspec.Raw | UnsetType = UNSET


class _ErrorAnswer(Struct):
    """The version tells it from the errors of gateways, which have a member of this name too."""

    jsonrpc: Literal["2.0"]
    error: RpcError


def read_rpc_error(body: bytes) -> RpcError | None:
    try:
        return msgspec.json.decode(body, type=_ErrorAnswer).error
    except (ValueError, RecursionError):
        # It is not JSON of this form, not UTF-8, or nested without end.
        return None


def judge_refusal(
    response: httpx2.Response, body: bytes, *, has_session: bool
) -> Failure | RpcError:
    """``has_session``: the request named one. An RpcError is the answer of the MCP server itself."""
    status = response.status_code
    error = read_rpc_error(body)
    why = status_text(status)
    if has_session and _names_session(status, body, error):
        return Failure(Kind.SESSION, why, status=status)
    if status == HTTPStatus.UNAUTHORIZED:
        challenge = response.headers.get("www-authenticate", "")
        return Failure(Kind.UNAUTHORIZED, why, challenge, status)
    return error or judge_status(status)


def judge_status(status: int) -> Failure:
    # After other errors of the server nobody knows what it did.
    has_begun = (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.SERVICE_UNAVAILABLE
    )
    kind = Kind.LOST if has_begun else Kind.REFUSED
    return Failure(kind, status_text(status), status=status)


def _names_session(status: int, body: bytes, error: RpcError | None) -> bool:
    if error is not None and error.code in {_METHOD_NOT_FOUND, _INVALID_PARAMS}:
        return False
    if status == HTTPStatus.NOT_FOUND:
        return True
    if status != HTTPStatus.BAD_REQUEST:
        return False
    if error is not None:
        is_named = _NAMES_SESSION.search(error.message) is not None
        return is_named or error.code == _SESSION_NOT_FOUND
    return _NAMES_SESSION.search(body.decode(errors="replace")) is not None


def status_text(status: int) -> str:
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return str(status)


class RedirectRefused(httpx2.TransportError):
    """A redirect that is not followed. The server did not do what it was asked for."""

    def __init__(self, response: httpx2.Response, url: httpx2.URL | None) -> None:
        self.status = response.status_code
        where = "an address that cannot be read"
        if url is not None:
            # Not what may be secret. The path may be that of the server's own address, whoever named it.
            where = show_address(str(url), is_configured=True)[:_MAX_LOCATION_CHARS]
        super().__init__(f"{status_text(self.status)}: redirect to {where} not followed")


def follow_redirect(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The request that the server wants instead. Only within its origin, and with the same method; otherwise RedirectRefused.

    All that is in a request was meant for this server.
    """
    try:
        url = request.url.join(str(response.headers["location"]))
    except (httpx2.InvalidURL, ValueError):
        raise RedirectRefused(response, None) from None
    keeps_method = request.method == "GET" or response.status_code in {
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
    if not keeps_method or not _is_within_origin(request.url, url):
        raise RedirectRefused(response, url)
    return httpx2.Request(
        request.method,
        url,
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions,
    )


def _is_within_origin(url: httpx2.URL, to: httpx2.URL) -> bool:
    """The same, or from http to https where both have their usual ports."""
    is_same = (url.scheme, url.host, url.port) == (to.scheme, to.host, to.port)
    is_upgrade = (url.scheme, url.port, to.scheme, to.port) == ("http", None, "https", None)
    brings_user = bool(to.userinfo) and to.userinfo != url.userinfo
    return (is_same or (is_upgrade and url.host == to.host)) and not brings_user


async def read_start(response: httpx2.Response) -> bytes:
    """The start of the body, as far as it comes. If it is short, the connection can then be used again."""
    received = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > _MAX_BODY_BYTES:
                    break
    except (httpx2.TransportError, TimeoutError):
        # The status says enough.
        pass
    finally:
        await response.aclose()
    return bytes(received)
