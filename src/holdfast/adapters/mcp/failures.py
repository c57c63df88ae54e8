"""What went wrong with a request, and which error callers get for it.

The SDK turns every failure into a JSON-RPC error of its own making. So the transports note what they saw, by the id of
the request.
"""

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from holdfast.core.mcp_addresses import hide_address, show_address
from holdfast.core.mcp_servers import Endpoint
from holdfast.errors import McpCallLost, McpUnauthorized, McpUnavailable

# Requests whose failure nobody asked for: those of cancelled calls.
_MAX_NOTED: Final = 1000


class Kind(Enum):
    UNSENT = auto()  # There was no connection, so the server knows nothing of the request.
    REFUSED = auto()  # The server answered with a status that says that it did nothing.
    UNAUTHORIZED = auto()
    SESSION = auto()  # The server does not know the session any more.
    LOST = auto()  # The request was sent, and there is no answer to it.
    TOO_LARGE = auto()


class Failure(Struct, frozen=True):
    kind: Kind
    why: str
    # Of UNAUTHORIZED: the header WWW-Authenticate.
    challenge: str = ""
    # The server's status, if it is the failure.
    status: int | None = None


class RequestFailed(Exception):
    """There is no answer to a request, and why."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.why)


class TransportFailed(Exception):
    """A transport cannot be opened, or ends by itself. The text is a sentence that says why. A transport raises it, and gives
    it to the session as the last item of its stream."""


class Failures:
    """The failures of one connection, by the id of the request."""

    def __init__(self) -> None:
        self._noted: OrderedDict[str | int, Failure] = OrderedDict()
        # The last of all: why connecting failed.
        self.last: Failure | None = None
        # Why there will be no more answers.
        self.closing = "the connection was closed"

    def note(self, request_id: str | int, failure: Failure) -> None:
        self.last = failure
        self._noted[request_id] = failure
        if len(self._noted) > _MAX_NOTED:
            self._noted.popitem(last=False)

    def find(self, request_id: str | int) -> Failure | None:
        return self._noted.get(request_id)

    def take(self, request_id: str | int | None) -> Failure | None:
        return None if request_id is None else self._noted.pop(request_id, None)


def explain_unavailable(endpoint: Endpoint, failure: Failure) -> McpUnavailable:
    if failure.kind is Kind.UNAUTHORIZED:
        return McpUnauthorized(endpoint.server_name, failure.challenge)
    reason = _hide_url(endpoint, failure.why)
    if failure.status is not None:
        why = f"HTTP error connecting to MCP server at {_show_url(endpoint)}: {reason}"
    else:
        target = (
            f"server at '{_show_url(endpoint)}'"
            if endpoint.url
            else f"command '{endpoint.command}'"
        )
        why = (
            f"Failed to connect to MCP {target}. Please check your configuration and ensure the server is accessible."
            f" Error: {reason}"
        )
    return McpUnavailable(endpoint.server_name, why)


def explain_lost(endpoint: Endpoint, failure: Failure) -> McpCallLost:
    return McpCallLost(endpoint.server_name, _hide_url(endpoint, failure.why))


def _show_url(endpoint: Endpoint) -> str:
    return show_address(endpoint.url or "", is_configured=endpoint.is_trusted)


def _hide_url(endpoint: Endpoint, text: str) -> str:
    """Libraries and servers may have quoted it. A program has none."""
    if not endpoint.url:
        return text
    return hide_address(text, endpoint.url, is_configured=endpoint.is_trusted)
