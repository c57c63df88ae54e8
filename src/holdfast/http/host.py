"""The ``Host`` of a request: one, in its plain form. Anything else two programs might read differently."""

import re
from ipaddress import IPv6Address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http.json_response import json_response
from holdfast.http.wire import Wires

_MAX_CHARACTERS: Final = 255
_HOST: Final = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>\d{1,5}))?"
)


def parse_hostname(host: str) -> str | None:
    """The name or address of ``host`` or ``host:port``, in lower case; None for any other text."""
    found = _HOST.fullmatch(host) if len(host) <= _MAX_CHARACTERS else None
    if found is None or int(found["port"] or 0) > 65535:
        return None
    if found["ipv6"] is None:
        return found["name"].lower()
    try:
        return str(IPv6Address(found["ipv6"]))
    except ValueError:
        return None


class HostCheck:
    """Refuses a request with no ``Host``, several, or one that is no host (400)."""

    def __init__(self, app: ASGIApp, wires: Wires) -> None:
        self._app = app
        self._wires = wires

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _has_valid_host(scope):
            body = self._wires.find(scope["path"]).render_refusal(
                "The request needs one Host header: a name or an address, with a port or without."
            )
            await json_response(body, 400, {"connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _has_valid_host(scope: Scope) -> bool:
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if not hosts:
        # HTTP/1.0 does not have it, and probes use that version.
        return bool(scope["http_version"] == "1.0")
    return len(hosts) == 1 and parse_hostname(hosts[0].decode("latin-1")) is not None
