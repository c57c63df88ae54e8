"""Requests to addresses that callers gave, and the rule that guards them (decisions/0013)."""

import asyncio
from typing import TYPE_CHECKING

from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import Reach, destination
from holdfast.errors import Undeliverable
from holdfast.ports.outgoing import Letter, Reply

if TYPE_CHECKING:
    from holdfast.adapters.outgoing.connections import Connections


class GuardedOutgoing:
    def __init__(self, allowed: Reach, lookup: Lookup | None = None) -> None:
        self._allowed = allowed
        self._lookup = lookup or Lookup(allowed)
        self._connections: Connections | None = None

    def check(self, url: str) -> None:
        destination(url, self._allowed)

    async def send(self, letter: Letter) -> Reply:
        to = destination(letter.url, self._allowed)
        try:
            async with asyncio.timeout(letter.timeout_seconds):
                return await self._ready().exchange(to, letter)
        except TimeoutError:
            raise Undeliverable(
                f"{to.host} gave no answer within {letter.timeout_seconds:g} s."
            ) from None

    def _ready(self) -> "Connections":
        if self._connections is None:
            from holdfast.adapters.outgoing.connections import (  # noqa: PLC0415 - most servers never write to anybody
                Connections,
            )

            self._connections = Connections(self._lookup)
        return self._connections
