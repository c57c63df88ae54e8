"""MCP servers: where tools from elsewhere come from, and how one is reached for a caller.

A server is what the store has. An endpoint is a server with everything filled in, ready to be connected to.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from holdfast.core.mcp_templates import PLACEHOLDER

# What stands in answers in place of a secret.
MASK: Final = "********"
AUTHORIZATION: Final = "Authorization"

MAX_NAME_CHARS: Final = 200
# No control characters: it is shown to people, and is a part of addresses.
NAME_PATTERN: Final = "^[^\\x00-\\x1f\\x7f]+$"
# Defaults that say that there is none, and the like: none, null, default. Others may be secrets.
_PLAIN_DEFAULT: Final = re.compile(r"[a-z]{0,8}")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|apikey|key) +", re.IGNORECASE)


class Transport(StrEnum):
    STDIO = "stdio"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"


class McpSecrets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Secret. Values may have placeholders, which ``mcp_templates`` fills in. None: not set."""

    auth_token: str | None = None
    custom_headers: dict[str, str] | None = None
    env: dict[str, str] | None = None

    def __repr__(self) -> str:
        return "McpSecrets(…)"


class McpServer(Struct, frozen=True, kw_only=True):
    """``server_url``, ``auth_header`` and the secrets of headers belong to HTTP; ``command``, ``args`` and env to stdio."""

    id: str
    organization_id: str
    name: str
    transport: Transport
    created_at: datetime
    updated_at: datetime
    secrets: McpSecrets = McpSecrets()
    server_url: str | None = None
    auth_header: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    # It comes from the operator's file, which says how it is reached: none of the fields above.
    is_configured: bool = False
    # How often the tools that it lists were stored.
    listings: int = 0
    created_by_id: str | None = None
    last_updated_by_id: str | None = None


class Endpoint(Struct, frozen=True, kw_only=True):
    """What a connection is opened to. Calls with equal endpoints share one connection, so everything that tells callers
    apart is part of it. Headers and env are secret."""

    server_id: str
    server_name: str
    transport: Transport
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    agent_id: str | None = None
    # Whose login the headers have the token of; None: nobody's, so that users share the connection.
    user_id: str | None = None
    # The operator named the address, so the rule for addresses that callers name does not apply.
    is_trusted: bool = False

    def __repr__(self) -> str:
        return f"Endpoint({self.server_name!r}, agent_id={self.agent_id!r}, …)"


class RemoteTool(Struct, frozen=True, kw_only=True):
    """A tool as an MCP server lists it. ``listing`` is all that the server says about it, as JSON."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] = {}
    # readOnlyHint, destructiveHint and so on, as the server gives them.
    annotations: dict[str, Any] = {}
    listing: dict[str, Any] = {}

    @property
    def is_read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True

    @property
    def is_destructive(self) -> bool:
        """Whether a call may destroy something. A server that does not say may (MCP's own default)."""
        return not self.is_read_only and self.annotations.get("destructiveHint") is not False


def mask_secret(value: str) -> str:
    """The value as answers show it: its scheme word and its placeholders stay, all other text is hidden, and so are defaults
    that may be secrets."""
    scheme = _SCHEME.match(value)
    shown = scheme.group() if scheme else ""
    rest = value[len(shown) :]
    return shown + "".join(_mask_parts(rest))


def mask_values(values: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if values is None else {key: mask_secret(value) for key, value in values.items()}


def _mask_parts(text: str) -> Iterator[str]:
    end = 0
    for found in PLACEHOLDER.finditer(text):
        if text[end : found.start()].strip():
            yield MASK
        else:
            yield text[end : found.start()]
        yield _mask_default(found)
        end = found.end()
    if text[end:]:
        yield MASK if text[end:].strip() else text[end:]


def _mask_default(placeholder: re.Match[str]) -> str:
    name, default = placeholder.groups()
    if default is None or _PLAIN_DEFAULT.fullmatch(default.strip()):
        return placeholder.group()
    return f"{{{{ {name} | {MASK} }}}}"
