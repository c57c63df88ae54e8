"""The end of a login at an MCP server, in the browser: reachable for everybody, and it shows nothing that a page could use."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_network

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.support.authorization_server import AuthorizationServer
from tests.support.http_app import use_app
from tests.support.mcp_clients import open_sdk_stdio
from tests.support.mcp_server import McpTestServer
from tests.support.rig import ACTOR
from tests.support.waiting import eventually

from holdfast.adapters.mcp.authorization import SdkMcpAuthorization
from holdfast.adapters.mcp.client import ClientOptions, PooledMcpClient
from holdfast.adapters.outgoing.guarded import GuardedOutgoing
from holdfast.core.addresses import parse_allowed
from holdfast.core.mcp_sessions import McpSession
from holdfast.http.app import HttpSettings
from holdfast.ports.mcp import McpOptions
from holdfast.ports.services import Services
from holdfast.usecases import mcp_logins
from holdfast.usecases.mcp_logins import LoginServer

Connect = Callable[[FastAPI], AsyncClient]

PATH = "/v1/tools/mcp/oauth/callback"
MISSING = {"status": "error", "message": "Missing state parameter"}
SECURE = HttpSettings(password="open-sesame")
OPEN = HttpSettings()
# What browsers send that come from the page of an authorization server.
FROM_ELSEWHERE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


@pytest.mark.tools(24)
@pytest.mark.parametrize("settings", [SECURE, OPEN], ids=["password", "loopback"])
@pytest.mark.parametrize("path", [PATH, f"{PATH}/"])
async def test_a_callback_without_a_state_is_told_so_without_a_password(
    services: Services, connect: Connect, settings: HttpSettings, path: str
) -> None:
    with use_app(services, settings) as app:
        async with connect(app) as client:
            for headers in ({}, FROM_ELSEWHERE, {"host": "agents.example"}):
                answer = await client.get(path, headers=headers)
                assert (answer.status_code, answer.json()) == (200, MISSING)
                assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/v1/tools/mcp/oauth", f"{PATH}/x", "/v1/tools/mcp/servers"])
async def test_nothing_else_is_open(services: Services, connect: Connect, path: str) -> None:
    with use_app(services, SECURE) as app:
        async with connect(app) as client:
            assert (await client.get(path)).status_code == 401
            assert (await client.post(PATH)).status_code == 405


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"state": "x"}, "Invalid or expired state parameter"),
        ({"state": "x", "code": "y"}, "Invalid or expired state parameter"),
        ({"state": "é\u2028", "error": "\x1b[31m"}, "Invalid or expired state parameter"),
        ({"code": "y"}, "Missing state parameter"),
        ({"error": "access_denied"}, "Missing state parameter"),
    ],
)
async def test_a_callback_is_always_answered_with_200(
    services: Services, connect: Connect, query: dict[str, str], message: str
) -> None:
    with use_app(services) as app:
        async with connect(app) as client:
            answer = await client.get(PATH, params=query)

    assert (answer.status_code, answer.json()) == (200, {"status": "error", "message": message})


@pytest.fixture
async def server() -> AsyncIterator[McpTestServer]:
    async with McpTestServer() as server:
        yield server


@pytest.fixture
def site(server: McpTestServer) -> AuthorizationServer:
    return AuthorizationServer(server)


@pytest.fixture
async def services_for_logins(services: Services) -> AsyncIterator[Services]:
    allowed = parse_allowed(["127.0.0.1"])
    client = PooledMcpClient(ClientOptions(), allowed, open_stdio=open_sdk_stdio)
    yield replace(
        services,
        outgoing=GuardedOutgoing(allowed),
        mcp=client,
        mcp_authorization=SdkMcpAuthorization(allowed),
    )
    await client.aclose()


async def begin_login(services: Services, site: AuthorizationServer) -> McpSession:
    server = LoginServer(name="notes", url=site.server.url)
    redirect_uri = f"http://localhost:8283{PATH}"
    return await mcp_logins.begin(services, ACTOR, server, redirect_uri=redirect_uri)


async def test_a_browser_gets_a_page_that_says_that_it_is_done(
    services_for_logins: Services, connect: Connect, site: AuthorizationServer
) -> None:
    begun = await begin_login(services_for_logins, site)
    with use_app(services_for_logins, SECURE) as app:
        async with connect(app) as client:
            page = await client.get(
                site.approve(begun.authorization_url),
                headers={"accept": "text/html,*/*;q=0.8"} | FROM_ELSEWHERE,
            )

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert "The login is complete" in page.text
    assert [secret for secret in site.secrets if secret in page.text] == []


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
async def test_what_an_address_says_cannot_become_part_of_the_page(
    services_for_logins: Services, connect: Connect, site: AuthorizationServer, accept: str
) -> None:
    begun = await begin_login(services_for_logins, site)
    attack = "</p><script>alert('{text}')</script>"
    query = {"state": begun.state or "", "error": attack, "error_description": attack * 1000}
    with use_app(services_for_logins) as app:
        async with connect(app) as client:
            answer = await client.get(PATH, params=query, headers={"accept": accept})

    if accept == "text/html":
        assert "<script" not in answer.text
        assert "&lt;script&gt;" in answer.text
    else:
        assert answer.json()["message"].startswith(f"OAuth error: {attack} - {attack}")
        assert answer.headers["content-type"] == "application/json"
    assert len(answer.text) < 5_000


@pytest.mark.parametrize(
    ("public_url", "headers", "expected"),
    [
        (None, {}, "http://localhost:8283"),
        (None, {"host": "agents.example"}, "http://agents.example"),
        (
            None,
            {
                "host": "agents.example",
                "x-forwarded-proto": "https",
                "x-forwarded-prefix": "/agents/",
            },
            "https://agents.example/agents",
        ),
        ("https://public.example/", {}, "https://public.example"),
        ("https://public.example/here", {"host": "x.example"}, "https://public.example/here"),
    ],
)
async def test_browsers_are_sent_back_to_where_the_server_is_reached(
    services_for_logins: Services,
    connect: Connect,
    site: AuthorizationServer,
    public_url: str | None,
    headers: dict[str, str],
    expected: str,
) -> None:
    services = replace(services_for_logins, mcp_options=McpOptions(public_url=public_url))
    settings = HttpSettings(password="open-sesame", trusted_proxies=(ip_network("127.0.0.1/32"),))
    config = {"mcp_server_type": "streamable_http", "server_url": site.server.url}
    sent = {"authorization": "Bearer open-sesame"} | headers
    with use_app(services, settings) as app:
        async with connect(app) as client:
            created = await client.post(
                "/v1/mcp-servers/", json={"server_name": "notes", "config": config}, headers=sent
            )
            path = f"/v1/mcp-servers/connect/{created.json()['id']}"
            # This transport gives an answer only when it has ended.
            connecting = asyncio.create_task(client.get(path, headers=sent))
            await eventually(lambda: len(site.clients) > 0)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    (registered,) = site.clients.values()
    assert registered.redirect_uris == [f"{expected}{PATH}"]
    is_local = expected.startswith("http://localhost")
    assert registered.fields["application_type"] == ("native" if is_local else "web")
