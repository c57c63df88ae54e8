"""The HTTP clients that the SDKs of providers are given."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from urllib.request import getproxies

import httpx2

from holdfast.adapters.models.accounts import Account
from holdfast.adapters.models.transport import StreamTransport

_Hook: TypeAlias = Callable[[Any], Awaitable[None]]

_CONNECT_SECONDS = 10.0

# The responses that the task's question opened, to close them at once: some SDKs leave that to the garbage collector.
_open_responses: ContextVar[list[httpx2.Response]] = ContextVar("opened")


class HttpClients:
    """Providers share a client where they can: loading certificates takes 20 ms."""

    def __init__(
        self,
        silence_seconds: float,
        *,
        on_request: _Hook | None = None,
        on_response: _Hook | None = None,
    ) -> None:
        """``silence_seconds``: how long a provider may send nothing."""
        self._timeout = httpx2.Timeout(silence_seconds, connect=_CONNECT_SECONDS)
        self._hooks = {
            "request": [on_request] if on_request else [],
            "response": [_track_response, *([on_response] if on_response else [])],
        }
        self._clients: dict[tuple[bool, bool], httpx2.AsyncClient] = {}

    def find_or_build(self, account: Account) -> httpx2.AsyncClient:
        kind = (account.is_plain_http, account.is_loopback)
        if kind not in self._clients:
            self._clients[kind] = httpx2.AsyncClient(
                transport=_transport(account),
                trust_env=not account.is_loopback,
                event_hooks=self._hooks,
                timeout=self._timeout,
            )
        return self._clients[kind]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


@asynccontextmanager
async def close_responses() -> AsyncIterator[None]:
    """Close, at the end, every response that this task opened."""
    opened: list[httpx2.Response] = []
    _open_responses.set(opened)
    try:
        yield
    finally:
        for response in opened:
            await response.aclose()


async def _track_response(response: httpx2.Response) -> None:
    _open_responses.get([]).append(response)


def _transport(account: Account) -> httpx2.AsyncBaseTransport | None:
    """Our own transport, which costs less per token; None, so httpx's, where a proxy is used."""
    # A proxy from the environment is for other machines, not for this one.
    if getproxies() and not account.is_loopback:
        return None
    # Plain HTTP has nothing to verify, and redirects are not followed.
    return StreamTransport(None if account.is_plain_http else httpx2.create_ssl_context())
