"""What a proxy says about its client: believed from the proxies that the operator named, removed from all others."""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.core.addresses import IPAddress, IPNetwork

FORWARDED_PREFIX: Final = b"x-forwarded-prefix"
_FORWARDED_FOR: Final = b"x-forwarded-for"
_FORWARDED_PROTO: Final = b"x-forwarded-proto"
_FORWARDED: Final = frozenset({_FORWARDED_FOR, _FORWARDED_PROTO, FORWARDED_PREFIX})

_PREFIX: Final = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+/?")
_MAX_PREFIX_BYTES: Final = 200


class ForwardedHeaders:
    """Sets the client's address and the scheme. After it, every ``X-Forwarded-*`` header comes from a trusted proxy."""

    def __init__(self, app: ASGIApp, trusted: Iterable[IPNetwork]) -> None:
        self._app = app
        self._trusted = tuple(trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self._is_trusted(_parse_address((scope.get("client") or ("",))[0])):
                self._believe(scope)
            else:
                scope["headers"] = [row for row in scope["headers"] if row[0] not in _FORWARDED]
        await self._app(scope, receive, send)

    def _believe(self, scope: Scope) -> None:
        if client := self._find_client(_values(scope, _FORWARDED_FOR)):
            scope["client"] = (str(client), 0)
        match _values(scope, _FORWARDED_PROTO):
            case [b"http" | b"https" as scheme]:
                scope["scheme"] = scheme.decode()

    def _find_client(self, values: list[bytes]) -> IPAddress | None:
        """The last address that is no trusted proxy's: each proxy adds the one that it was called from."""
        found = None
        entries = b",".join(values).decode("latin-1").split(",")
        for entry in reversed(entries):
            address = _parse_address(entry.strip())
            if address is None:
                break
            found = address
            if not self._is_trusted(address):
                break
        return found

    def _is_trusted(self, address: IPAddress | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


class ForwardedPrefix:
    """Sets the path under which a proxy publishes this server, for the links that the server makes.

    For behind ``ForwardedHeaders`` and all that looks at the path: from here on the path begins with the prefix.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            match _values(scope, FORWARDED_PREFIX):
                case [value] if len(value) <= _MAX_PREFIX_BYTES and _PREFIX.fullmatch(value):
                    prefix = value.decode().rstrip("/")
                    scope["root_path"] = prefix
                    scope["path"] = prefix + scope["path"]
        await self._app(scope, receive, send)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value.strip() for key, value in scope["headers"] if key == name]


def _parse_address(text: str) -> IPAddress | None:
    """Also with a port, as some proxies write it."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if address.version == 6 else address
