"""Requests to addresses that a caller gave: a callback, a picture. Never elsewhere than a caller may send us."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """One request. ``timeout_seconds`` is for all of it, the look-up of the name included."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    timeout_seconds: float
    # An answer with a larger body is not read to its end: Undeliverable.
    max_response_bytes: int


class OutgoingResponse(Struct, frozen=True):
    """What came back, whatever its status. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Outgoing(Protocol):
    def check(self, url: str) -> None:
        """AddressForbidden if it is evident from the text that the URL will not be reached. One that passes
        may still be refused later: what its name means is known only when it is looked up."""
        ...

    async def send(self, request: OutgoingRequest) -> OutgoingResponse:
        """The answer to one request. The name is looked up once and the connection made to an address that
        was judged; Host and TLS keep the name. Redirects are not followed, proxies not used, nothing is tried
        twice. AddressForbidden, or Undeliverable if there is no answer in time."""
        ...
