"""How the addresses of MCP servers are shown: some have keys in them."""

import pytest

from holdfast.core.mcp_addresses import hide_address, show_address
from holdfast.core.mcp_servers import MASK

SECRET = "https://mcp.example/s/secret/mcp"


@pytest.mark.parametrize(
    ("url", "shown", "configured"),
    [
        ("https://mcp.example", "https://mcp.example", "https://mcp.example"),
        ("https://mcp.example/mcp", "https://mcp.example/mcp", "https://mcp.example/mcp"),
        ("http://[::1]:8080/sse/", "http://[::1]:8080/sse/", "http://[::1]:8080/sse/"),
        (SECRET, SECRET, f"https://mcp.example/{MASK}"),
        ("https://mcp.example/mcp?key=secret", "https://mcp.example/mcp", None),
        ("https://me:secret@mcp.example/mcp", "https://mcp.example/mcp", "https://mcp.example/mcp"),
        ("https://a@b@mcp.example/mcp#secret", "https://mcp.example/mcp", None),
        ("https://[secret/mcp", MASK, MASK),
    ],
)
def test_what_may_be_secret_in_an_address_is_not_shown(
    url: str, shown: str, configured: str | None
) -> None:
    assert show_address(url, is_configured=False) == shown
    hidden = show_address(url, is_configured=True)
    assert hidden == configured or configured is None
    assert "secret" not in hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"for url '{SECRET}'", f"for url 'https://mcp.example/{MASK}'"),
        ("GET /s/secret/mcp: not found", f"GET /{MASK}: not found"),
        ("no route to mcp.example", "no route to mcp.example"),
    ],
)
def test_an_address_that_somebody_quotes_is_hidden_in_the_text(text: str, shown: str) -> None:
    assert hide_address(text, SECRET, is_configured=True) == shown
    assert hide_address(text, SECRET, is_configured=False) == text


def test_a_query_that_somebody_quotes_is_hidden_in_the_text() -> None:
    url = "https://mcp.example/mcp?key=secret"
    for is_configured in (False, True):
        for text in (f"for {url}.", "for /mcp?key=secret."):
            assert "secret" not in hide_address(text, url, is_configured=is_configured)
    assert hide_address("for /mcp?key=secret.", url, is_configured=False) == "for /mcp."
