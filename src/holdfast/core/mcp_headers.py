"""The headers of requests to MCP servers: how callers may write them, and which are sent (tools-v1 §1.1, §1.4)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.core.mcp_servers import AUTHORIZATION

# Names the agent that a request is made for.
AGENT_HEADER: Final = "X-Agent-Id"

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# What a header may have besides printable ASCII: blanks, tabs and Latin-1.
_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
# "Bearer abc", "Basic abc", "Token abc": a word, then the credentials.
_HAS_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.~-]* +\S")
_QUOTES: Final = ('"', "'")
# They belong to the connection or to the session, so a caller's value would break both.
_RESERVED: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "mcp-protocol-version",
        "mcp-session-id",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def clean_name(name: str) -> str:
    """The name without what people paste with it: blanks, quotes, the colon."""
    return _strip_quotes(name.strip()).rstrip(":").strip()


def clean_value(value: str) -> str:
    return _strip_quotes(value.strip())


def find_fault(name: str, value: str) -> str | None:
    """Why this header cannot be sent; None if it can. The text never has the value, nor what is no name: people paste whole
    headers there."""
    cleaned = clean_name(name)
    if _NAME.fullmatch(cleaned) is None:
        return "the name of a header has characters that no such name has"
    if cleaned.lower() in _RESERVED:
        return f"the header {cleaned} is set by the connection itself"
    if _VALUE.fullmatch(clean_value(value)) is None:
        return f"the value of the header {cleaned} has line breaks or characters outside of Latin-1"
    return None


def is_authorization(name: str) -> bool:
    return clean_name(name).lower() == AUTHORIZATION.lower()


def add_scheme(header: str | None, token: str) -> str:
    """The value of the header: under Authorization, a token without a scheme is a bearer token."""
    cleaned = clean_value(token)
    if (header and not is_authorization(header)) or _HAS_SCHEME.match(cleaned) or not cleaned:
        return cleaned
    return f"Bearer {cleaned}"


def merge_headers(
    custom: Mapping[str, str], authentication: Iterable[tuple[str, str]], agent_id: str | None
) -> tuple[tuple[str, str], ...]:
    """The headers of a request. A custom header goes before an authentication of the same name; empty ones are left out."""
    headers: dict[str, tuple[str, str]] = {}
    for name, value in (*authentication, *custom.items()):
        cleaned = clean_name(name), clean_value(value)
        if all(cleaned):
            headers[cleaned[0].lower()] = cleaned
    if agent_id is not None:
        headers[AGENT_HEADER.lower()] = AGENT_HEADER, agent_id
    return tuple(headers.values())


def _strip_quotes(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in _QUOTES:
        return text[1:-1].strip()
    return text
