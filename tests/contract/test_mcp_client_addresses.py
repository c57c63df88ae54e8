"""Which addresses the client of MCP servers connects to: the rule for addresses that callers name, at each connect."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.mcp_clients import LOOPBACK, endpoint_of, open_client, read_text
from tests.support.mcp_server import McpAnswer, McpTestServer

from holdfast.adapters.outgoing.lookup import Lookup
from holdfast.core.addresses import AllowedAddresses, parse_allowed
from holdfast.errors import McpUnavailable

NOTHING_ALLOWED = AllowedAddresses()
KINDS: list[dict[str, Any]] = [
    {},
    {"generation": "handshake"},
    {"generation": "handshake", "transport": "sse"},
]
BY_NAME = ["modern", "handshake", "sse"]


@dataclass
class Names:
    """A resolver of names for one test."""

    addresses: list[str]
    asked: int = 0

    def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self.addresses


@pytest.mark.parametrize("kind", KINDS, ids=BY_NAME)
async def test_a_private_address_is_refused_and_the_setting_is_named(kind: dict[str, Any]) -> None:
    async with McpTestServer(**kind) as server, open_client(allowed=NOTHING_ALLOWED) as client:
        with pytest.raises(McpUnavailable, match="HOLDFAST_ALLOWED_PRIVATE_HOSTS"):
            await client.list_tools(endpoint_of(server))
        assert server.requests == []


@pytest.mark.parametrize("kind", KINDS, ids=BY_NAME)
async def test_a_name_of_a_private_address_is_refused(kind: dict[str, Any]) -> None:
    names = Names(["127.0.0.1"])
    lookup = Lookup(NOTHING_ALLOWED, names.resolve)
    async with McpTestServer(**kind) as server:
        async with open_client(allowed=NOTHING_ALLOWED, lookup=lookup) as client:
            url = server.url.replace("127.0.0.1", "tools.example.com")
            with pytest.raises(
                McpUnavailable, match=r"tools\.example\.com is not a public address"
            ):
                await client.list_tools(endpoint_of(server, url=url))
        assert server.requests == []
        assert names.asked


async def test_a_name_that_changes_its_address_is_judged_at_each_connect() -> None:
    names = Names(["127.0.0.1"])
    lookup = Lookup(LOOPBACK, names.resolve)
    async with McpTestServer() as server, open_client(lookup=lookup) as client:
        url = server.url.replace("127.0.0.1", "tools.example.com")
        endpoint = endpoint_of(server, url=url)
        assert read_text(await client.call(endpoint, "echo", {"text": "ok"})) == "ok"
        names.addresses = ["10.0.0.7"]
        await asyncio.to_thread(server.restart)
        with pytest.raises(McpUnavailable, match="HOLDFAST_ALLOWED_PRIVATE_HOSTS"):
            await client.call(endpoint, "echo", {})


@pytest.mark.parametrize("kind", KINDS, ids=BY_NAME)
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_to_another_server_is_not_followed(
    kind: dict[str, Any], status: int
) -> None:
    async with (
        McpTestServer(**kind) as other,
        McpTestServer(**kind) as server,
        open_client() as client,
    ):
        there = other.url.replace("//", "//user:secret@") + "/far" * 1000
        headers = {"location": f"{there}?secret=1"}
        server.intercept = lambda request: McpAnswer(status, b"", headers)
        with pytest.raises(McpUnavailable) as caught:
            await client.list_tools(endpoint_of(server))
        assert "secret" not in caught.value.why
        assert f"{status} " in caught.value.why
        assert (
            f"redirect to {other.url.removesuffix('/mcp').removesuffix('/sse')}/"
            in caught.value.why
        )
        assert "/far" not in caught.value.why
        assert len(caught.value.why) < 700
        assert other.requests == []


@pytest.mark.parametrize("kind", KINDS, ids=BY_NAME)
async def test_a_redirect_within_the_server_is_followed_and_judged(kind: dict[str, Any]) -> None:
    async with McpTestServer(**kind) as server, open_client() as client:
        path = server.path
        server.intercept = lambda request: (
            McpAnswer(307, b"", {"location": path}) if request.path == f"{path}-old" else None
        )
        endpoint = endpoint_of(server, url=f"{server.url}-old")
        assert read_text(await client.call(endpoint, "echo", {"text": "moved"})) == "moved"
        # Notifications too, on which the server may depend.
        count = len(server.requests_of("notifications/initialized"))
        assert count == {"modern": 0, "handshake": 2, "sse": 1}[BY_NAME[KINDS.index(kind)]]


async def test_a_redirect_that_leads_to_itself_is_followed_a_few_times() -> None:
    async with McpTestServer() as server, open_client() as client:
        server.intercept = lambda request: McpAnswer(307, b"", {"location": server.url})
        with pytest.raises(McpUnavailable, match="307 Temporary Redirect"):
            await client.list_tools(endpoint_of(server))
        assert len(server.requests) < 20


async def test_the_address_for_messages_must_be_on_the_same_server() -> None:
    async with McpTestServer() as other:
        async with McpTestServer(generation="handshake", transport="sse") as server:
            event = f"event: endpoint\ndata: {other.origin}/messages\n\n".encode()
            headers = {"content-type": "text/event-stream"}
            server.intercept = lambda request: McpAnswer(200, event, headers)
            async with open_client() as client:
                with pytest.raises(McpUnavailable, match="on another server"):
                    await client.list_tools(endpoint_of(server))
        assert other.requests == []


async def test_servers_of_the_operator_are_not_judged() -> None:
    async with McpTestServer() as server, open_client(allowed=NOTHING_ALLOWED) as client:
        endpoint = endpoint_of(server, is_trusted=True)
        assert read_text(await client.call(endpoint, "echo", {"text": "mine"})) == "mine"


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with McpTestServer() as server, open_client() as client:
        assert await client.list_tools(endpoint_of(server))


@pytest.mark.parametrize(
    "url",
    ["http://user:word@127.0.0.1/mcp", "http://0x7f.1/mcp", "ftp://127.0.0.1/mcp", "http:///mcp"],
)
async def test_a_url_in_an_unusual_notation_is_refused(url: str) -> None:
    allowed = parse_allowed(["127.0.0.0/8"])
    async with McpTestServer() as server, open_client(allowed=allowed) as client:
        with pytest.raises(McpUnavailable):
            await client.list_tools(endpoint_of(server, url=url))


async def test_secrets_are_in_no_message() -> None:
    async with McpTestServer() as server, open_client() as client:
        server.token = "right"
        endpoint = endpoint_of(
            server, url=f"{server.url}?key=SECRET", headers=(("Authorization", "Bearer SECRET"),)
        )
        with pytest.raises(McpUnavailable) as caught:
            await client.list_tools(endpoint)
        assert "SECRET" not in str(caught.value)
        server.intercept = lambda request: McpAnswer(500, json.dumps({"no": "rpc"}).encode())
        with pytest.raises(McpUnavailable) as caught:
            await client.list_tools(endpoint)
        assert "SECRET" not in str(caught.value) + repr(endpoint)
