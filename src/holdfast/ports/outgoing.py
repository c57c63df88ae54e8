"""HTTP requests to addresses that a caller gave: callbacks, pictures. Private addresses are refused unless allowed."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """One request. ``timeout_seconds`` covers all of it, including name resolution."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    timeout_seconds: float
    # A larger response body is not read to its end: Undeliverable.
    max_response_bytes: int


class OutgoingResponse(Struct, frozen=True):
    """The response, whatever its status. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Outgoing(Protocol):
    def check(self, url: str) -> None:
        """Raise AddressForbidden if the text of the URL shows that ``send`` would refuse it. A URL that passes may still
        be refused by ``send``, because its host name is resolved only then."""
        ...

    def check_secure(self, url: str) -> None:
        """The same, and AddressForbidden if the tokens of a login must not be sent there: neither TLS nor a host that the
        operator names."""
        ...

    async def is_public(self, url: str) -> bool:
        """Whether somebody else could get the same from the URL: all addresses of its host are public, and the operator
        does not name it among those that are allowed besides. Raises as ``check`` does."""
        ...

    async def send(self, request: OutgoingRequest) -> OutgoingResponse:
        """Send one request and return the response.

        The host name is resolved once, the address is checked, and the connection goes to that address; Host header
        and TLS keep the name. Redirects are not followed, proxies are not used, and nothing is retried.
        AddressForbidden if the address is refused, Undeliverable if there is no response in time."""
        ...
