"""What is refused before there is a call to answer: JSON-RPC errors that belong to no request."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from holdfast.errors import HoldfastError, Unauthorized
from holdfast.http.error_status import public_text
from holdfast.http.wire import Fault

# The codes of JSON-RPC.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
# The first of those that MCP leaves to its implementations.
_REFUSED: Final = -32000
_LOCKED: Final = "This server needs its password, in the header 'Authorization: Bearer <password>'."


class RpcFault(Struct, frozen=True):
    code: int
    message: str


class Refusal(Struct, frozen=True, kw_only=True):
    jsonrpc: Literal["2.0"] = "2.0"
    # Of no request: either it could not be read, or it was refused unread.
    id: None = None
    error: RpcFault


def refuse(message: str, code: int = _REFUSED) -> Refusal:
    return Refusal(error=RpcFault(code, message))


def render_error(error: HoldfastError) -> Refusal:
    if isinstance(error, Unauthorized):
        return refuse(_LOCKED)
    return refuse(public_text(error))


def render_invalid_request(faults: Sequence[Fault]) -> Refusal:
    return refuse("; ".join(str(fault.get("msg", "")) for fault in faults), INVALID_REQUEST)
