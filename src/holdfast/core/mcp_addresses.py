"""How the address of an MCP server is shown: in answers, in logs and to models. Some addresses have keys in them."""

from typing import Final
from urllib.parse import urlsplit

from holdfast.core.mcp_servers import MASK

# They have no secrets in them.
_USUAL_PATHS: Final = frozenset({"", "/", "/mcp", "/mcp/", "/sse", "/sse/"})
_HIDDEN_PATH: Final = f"/{MASK}"


def show_address(url: str, *, is_configured: bool) -> str:
    """The address without name, password and query. ``is_configured``: it belongs to a server of the operator's file. Who
    uses the API is not the operator, so of such an address an unusual path is hidden too."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")[2]
    is_usual = parts.path in _USUAL_PATHS and not parts.query
    path = _HIDDEN_PATH if is_configured and not is_usual else parts.path
    return f"{parts.scheme}://{host}{path}"


def hide_address(text: str, url: str, *, is_configured: bool) -> str:
    """The text with the address as it is shown, wherever it is quoted: whole, or what follows the host."""
    shown = show_address(url, is_configured=is_configured)
    if shown == url:
        return text
    text = text.replace(url, shown)
    parts = urlsplit(url)
    if parts.query:
        text = text.replace(f"?{parts.query}", "")
    if is_configured and parts.path not in _USUAL_PATHS:
        text = text.replace(parts.path, _HIDDEN_PATH)
    return text
