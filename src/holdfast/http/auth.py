"""Who may send requests: plain ASGI, before a route is looked up.

With a password, everybody who sends it. Without one, only programs on this machine: a web page that the same
person has open must not control the server, neither under a name that it made resolve to loopback (DNS
rebinding) nor with requests across origins. Tools of the server are programs on this machine too; they need a password.
"""

import hmac
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.core.addresses import is_loopback
from holdfast.errors import Unauthorized
from holdfast.http.connection_scope import find_connection
from holdfast.http.error_status import error_response
from holdfast.http.json_response import json_response
from holdfast.http.wire import Wire, Wires
from holdfast.ports.tool_connections import ToolConnections


class PasswordGate:
    def __init__(
        self, app: ASGIApp, password: str, open_paths: frozenset[str], wires: Wires
    ) -> None:
        self._app = app
        self._open_paths = open_paths
        self._password = password.encode()
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_path_in(self._open_paths, scope):
            wire = self._wires.find(scope["path"])
            if not self._has_password(Headers(scope=scope), wire):
                await error_response(wire, Unauthorized())(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _has_password(self, headers: Headers, wire: Wire) -> bool:
        # Header values come as Latin-1; a password is compared as the bytes that were sent.
        return any(
            hmac.compare_digest(candidate.encode("latin-1"), self._password)
            for candidate in _sent_passwords(headers, wire)
        )


def _sent_passwords(headers: Headers, wire: Wire) -> Iterator[str]:
    for header, prefix in wire.password_headers.items():
        value = headers.get(header, "")
        if value[: len(prefix)].lower() == prefix:
            yield value[len(prefix) :]


_TOOL_REFUSAL = (
    "This request comes from a tool of this server, or from a program that cannot be told from one. A server without "
    "a password refuses those. Set HOLDFAST_PASSWORD, and give it to the tools and programs that are to use this API."
)


class LoopbackGate:
    """For a server without a password. With ``any_host`` something else protects the port, and any Host will do."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        any_host: bool,
        open_paths: frozenset[str],
        wires: Wires,
        tool_connections: ToolConnections | None,
    ) -> None:
        self._app = app
        self._wires = wires
        self._tool_connections = tool_connections
        self._open_paths = open_paths
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_path_in(self._open_paths, scope):
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                body = self._wires.find(scope["path"]).render_refusal(refusal)
                await json_response(body, 403)(scope, receive, send)
                return
            if await self._may_be_tool(scope):
                body = self._wires.find(scope["path"]).render_refusal(_TOOL_REFUSAL)
                # What was found out holds for the connection; a program that was refused by mistake opens a new one.
                response = json_response(body, 403)
                response.headers["connection"] = "close"
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _may_be_tool(self, scope: Scope) -> bool:
        connection = find_connection(scope)
        if self._tool_connections is None or connection is None:
            return False
        return await self._tool_connections.may_be_tool(connection)

    def _refusal(self, headers: Mapping[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self._any_host and not is_loopback(_hostname(host)):
            return (
                f"This server has no password and answers only to loopback names such as localhost, not to "
                f"the Host '{host}'. Set HOLDFAST_PASSWORD to open it to other names."
            )
        if not _is_allowed_origin(headers, host):
            return (
                "This server has no password and refuses requests from web pages of another origin. "
                "Set HOLDFAST_PASSWORD to allow them."
            )
        return None


def _is_allowed_origin(headers: Mapping[str, str], host: str) -> bool:
    origin = headers.get("origin")
    if origin is None:
        # Images, forms and links have no Origin, but browsers still say that they come from another site.
        return headers.get("sec-fetch-site") != "cross-site"
    site = origin.partition("://")[2]
    return bool(site) and (site == host or is_loopback(_hostname(site)))


def _hostname(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _is_path_in(paths: frozenset[str], scope: Scope) -> bool:
    return str(scope["path"]).removesuffix("/") in paths
