"""Sends requests to URLs that callers gave, if the rules for addresses allow it (decisions/0013)."""

import asyncio
from typing import TYPE_CHECKING

from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import (
    AllowedAddresses,
    check_secure,
    is_named,
    is_public,
    parse_destination,
)
from holdfast.errors import Undeliverable
from holdfast.ports.outgoing import OutgoingRequest, OutgoingResponse

if TYPE_CHECKING:
    from holdfast.adapters.outgoing.connections import Connections


class GuardedOutgoing:
    def __init__(self, allowed: AllowedAddresses, lookup: Lookup | None = None) -> None:
        self._allowed = allowed
        self._lookup = lookup or Lookup(allowed)
        self._connections: Connections | None = None

    def check(self, url: str) -> None:
        parse_destination(url, self._allowed)

    def check_secure(self, url: str) -> None:
        check_secure(parse_destination(url, self._allowed), self._allowed)

    async def is_public(self, url: str) -> bool:
        to = parse_destination(url, self._allowed)
        if is_named(to.host, self._allowed):
            return False
        try:
            found = await self._lookup.find_all_addresses(to.host, to.port)
        except Undeliverable:
            return False
        return bool(found) and all(map(is_public, found))

    async def send(self, request: OutgoingRequest) -> OutgoingResponse:
        to = parse_destination(request.url, self._allowed)
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await self._load_connections().send(to, request)
        except TimeoutError:
            raise Undeliverable(
                f"{to.host} gave no answer within {request.timeout_seconds:g} s."
            ) from None

    def _load_connections(self) -> "Connections":
        if self._connections is None:
            from holdfast.adapters.outgoing.connections import (  # noqa: PLC0415 - most servers never send such requests
                Connections,
            )

            self._connections = Connections(self._lookup)
        return self._connections
