"""The requests of a login: to addresses that an MCP server or its authorization server names, so each of them is judged."""

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urljoin

from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, Destination, parse_destination
from holdfast.errors import LoginFailed, Undeliverable
from holdfast.ports.outgoing import OutgoingRequest, OutgoingResponse

# Each request with its redirects: the person who logs in waits, and a refresh must end long before its lock does.
TIMEOUT_SECONDS: Final = 10.0
# Documents of authorization servers have some kilobytes.
MAX_BYTES: Final = 256 * 1024
# As many as the SDK follows.
MAX_REDIRECTS: Final = 5

_KEEPS_METHOD: Final = frozenset({307, 308})
_REDIRECTS: Final = frozenset({301, 302, 303, *_KEEPS_METHOD})


class OAuthRequests:
    def __init__(self, allowed: AllowedAddresses, lookup: Lookup | None = None) -> None:
        self._allowed = allowed
        self._outgoing = GuardedOutgoing(allowed, lookup)

    async def get(self, url: str, headers: Mapping[str, str]) -> OutgoingResponse:
        return await self._send("GET", url, headers)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> OutgoingResponse:
        """Send secrets, or ask for some: only over TLS, or to hosts that the operator names."""
        self.check_secure(url)
        return await self._send("POST", url, headers, body)

    async def post_form(
        self, url: str, headers: Mapping[str, str], form: Mapping[str, str]
    ) -> OutgoingResponse:
        form_type = {"content-type": "application/x-www-form-urlencoded"}
        return await self.post(url, {**headers, **form_type}, urlencode(form).encode())

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> OutgoingResponse:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._follow(method, url, headers, body)
        except TimeoutError:
            host = parse_destination(url, self._allowed).host
            raise LoginFailed(f"{host} gave no answer within {TIMEOUT_SECONDS:g} s.") from None

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OutgoingResponse:
        """Redirects are followed within the origin, as the SDK does it: whatever leaves it was meant for nobody else."""
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send_once(method, url, headers, body)
            target = self._find_redirect(method, url, response)
            if target is None:
                return response
            url = target
        host = parse_destination(url, self._allowed).host
        raise LoginFailed(f"{host} redirects too often.")

    async def _send_once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OutgoingResponse:
        request = OutgoingRequest(
            url=url,
            method=method,
            headers={
                "accept": "application/json",
                **headers,
                **({"content-length": str(len(body))} if body else {}),
            },
            body=body,
            timeout_seconds=TIMEOUT_SECONDS,
            max_response_bytes=MAX_BYTES,
        )
        try:
            return await self._outgoing.send(request)
        except Undeliverable as error:
            raise LoginFailed(str(error)) from error

    def _find_redirect(self, method: str, url: str, response: OutgoingResponse) -> str | None:
        location = response.headers.get("location")
        follows = _REDIRECTS if method == "GET" else _KEEPS_METHOD
        if response.status not in follows or location is None:
            return None
        try:
            target = urljoin(url, location)
            is_followed = _is_within_origin(
                parse_destination(url, self._allowed), parse_destination(target, self._allowed)
            )
        except ValueError:
            return None
        return target if is_followed else None

    def check_secure(self, url: str) -> None:
        """Raise AddressForbidden if ``post`` would not send anything there."""
        self._outgoing.check_secure(url)


def _is_within_origin(one: Destination, other: Destination) -> bool:
    if (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port):
        return True
    usual = (one.scheme, one.port, other.scheme, other.port) == ("http", 80, "https", 443)
    return usual and one.host == other.host
