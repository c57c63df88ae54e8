"""Who may come in, and with how much: plain ASGI, before any route is looked up.

With a password, whoever brings it. Without one, programs on this machine alone: a web page that the same
person has open must not drive the server, neither through a name that it made resolve to loopback (DNS
rebinding) nor by sending requests across origins.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.addresses import is_loopback
from holdfast.errors import Unauthorized
from holdfast.http.error_status import error_response
from holdfast.http.json_response import json_response
from holdfast.http.letta_v1.schemas.errors import Problem

# Probes know no password (wire-v1 §1.3).
OPEN_PATHS = frozenset({"/v1/health", "/v1/ready", "/latest/health", "/latest/ready"})

_BARE_PASSWORD = "password "  # noqa: S105 - the word before a password, not one
_BEARER = "bearer "


class PasswordGate:
    def __init__(self, app: ASGIApp, password: str, open_paths: frozenset[str]) -> None:
        self._app = app
        self._open_paths = open_paths
        self._password = password.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and not _is_path_in(self._open_paths, scope)
            and not self._has_password(Headers(scope=scope))
        ):
            await error_response(Unauthorized())(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _has_password(self, headers: Headers) -> bool:
        offers = (
            _text_after_prefix(_BEARER, headers.get("authorization", "")),
            _text_after_prefix(_BARE_PASSWORD, headers.get("x-bare-password", "")),
        )
        # Header values come as Latin-1; a password is compared as the bytes that were sent.
        return any(hmac.compare_digest(offer.encode("latin-1"), self._password) for offer in offers)


class LoopbackGate:
    """For a server without a password. ``any_host`` leaves the Host header to whatever guards the port."""

    def __init__(self, app: ASGIApp, *, any_host: bool, open_paths: frozenset[str]) -> None:
        self._app = app
        self._open_paths = open_paths
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_path_in(self._open_paths, scope):
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await json_response(Problem(detail=refusal), 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)

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
        # Images, forms and links name no origin, but browsers still say that they cross sites.
        return headers.get("sec-fetch-site") != "cross-site"
    site = origin.partition("://")[2]
    return bool(site) and (site == host or is_loopback(_hostname(site)))


def _hostname(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def _text_after_prefix(word: str, text: str) -> str:
    return text[len(word) :] if text[: len(word)].lower() == word else ""


def _is_path_in(paths: frozenset[str], scope: Scope) -> bool:
    return str(scope["path"]).removesuffix("/") in paths


class BodyLimit:
    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            response = json_response(Problem(detail=self._refusal()), 413, {"connection": "close"})
            await response(scope, receive, send)
            return
        await self._app(scope, self._count_bytes(receive), send)

    def _count_bytes(self, receive: Receive) -> Receive:
        """For bodies that do not announce their length, or lie."""
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                # An HTTPException, because FastAPI turns any other error from here into a 400.
                raise HTTPException(413, self._refusal(), {"connection": "close"})
            return message

        return receive_counted

    def _refusal(self) -> str:
        return (
            f"The request body is larger than {self._max_bytes} bytes, the limit of this server. "
            "The operator sets it with HOLDFAST_MAX_BODY_BYTES."
        )
