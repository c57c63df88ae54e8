"""The operator's file may have addresses with keys in them: nobody who uses the API, no model and no log has one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from fastapi import FastAPI
from httpx import AsyncClient
from tests.support.authorization_server import AuthorizationServer
from tests.support.http_app import use_app
from tests.support.mcp_clients import open_client
from tests.support.mcp_server import McpAnswer, McpRequest, McpTestServer
from tests.support.rig import ACTOR

from holdfast.adapters.mcp.authorization import SdkMcpAuthorization
from holdfast.core.addresses import AllowedAddresses
from holdfast.core.mcp_servers import MASK
from holdfast.ports.mcp import ConfiguredServer, McpOptions
from holdfast.ports.services import Services
from holdfast.usecases import mcp_configured, mcp_logins, mcp_refresh
from holdfast.usecases.mcp_logins import LoginServer

Connect = Callable[[FastAPI], AsyncClient]

PATH = "/s/swordfish/mcp"
NOBODY_ALLOWED = AllowedAddresses()


@pytest.fixture
async def server() -> AsyncIterator[McpTestServer]:
    async with McpTestServer() as server:
        yield server


@pytest.fixture
async def secret_services(services: Services, server: McpTestServer) -> AsyncIterator[Services]:
    """The operator's file names the server with a key in its path and in its query."""
    configured = {
        "path": ConfiguredServer(name="path", url=f"{server.origin}{PATH}"),
        "query": ConfiguredServer(name="query", url=f"{server.url}?key=swordfish"),
    }
    async with open_client(allowed=NOBODY_ALLOWED) as client:
        yield replace(
            services,
            mcp=client,
            mcp_options=McpOptions(configured=configured),
            mcp_authorization=SdkMcpAuthorization(NOBODY_ALLOWED),
        )


def _quote(request: McpRequest) -> McpAnswer:
    """As servers that repeat what they do not have."""
    asked = PATH if request.path == PATH else f"{request.path}?key=swordfish"
    body = f'{{"jsonrpc": "2.0", "id": 1, "error": {{"code": -1, "message": "no {asked}"}}}}'
    return McpAnswer(404, body.encode())


def _send_elsewhere(request: McpRequest) -> McpAnswer:
    target = f"https://elsewhere.example{request.path}?key=swordfish"
    return McpAnswer(307, b"", {"location": target})


@pytest.mark.parametrize("failure", ["away", "404", "quoted", "redirect"])
async def test_a_server_that_fails_is_named_without_its_key(
    secret_services: Services,
    connect: Connect,
    server: McpTestServer,
    caplog: pytest.LogCaptureFixture,
    failure: str,
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    rows = await mcp_configured.synchronise(secret_services, ACTOR)
    for row in rows:
        if row.name == "query":
            await mcp_refresh.refresh(secret_services, ACTOR, row.id)
            await secret_services.mcp.forget(row.id)
    if failure == "away":
        await asyncio.to_thread(server.stop)
    elif failure == "quoted":
        server.intercept = _quote
    elif failure == "redirect":
        server.intercept = _send_elsewhere
    else:
        server.intercept = lambda request: McpAnswer(404, b"", {})

    answers = []
    with use_app(secret_services) as app:
        async with connect(app) as client:
            for row in rows:
                path = f"/v1/mcp-servers/{row.id}"
                answers.append(await client.get(path))
                answers.append(await client.patch(f"{path}/refresh"))
                answers.append(await client.get(f"/v1/mcp-servers/connect/{row.id}"))
                # Each attempt to connect comes later than the one before it, so one tool is enough.
                tools = (await client.get(f"{path}/tools")).json()[:1]
                runs = [f"{path}/tools/{tool['id']}/run" for tool in tools]
                answers += [await client.post(run) for run in runs]

    assert {answer.status_code for answer in answers} == {200, 404, 502}
    told = [answer.text for answer in answers]
    assert [text for text in told if "swordfish" in text] == []
    assert sum(f"{server.origin}/{MASK}" in text for text in told) >= 2
    lines = [str(vars(record)) for record in caplog.records]
    assert any("mcp.connect_failed" in line for line in lines)
    assert [line for line in lines if "swordfish" in line] == []


async def test_the_end_of_a_login_names_the_server_without_its_key(
    secret_services: Services, connect: Connect, server: McpTestServer
) -> None:
    """Nobody is authenticated there."""
    site = AuthorizationServer(server)
    url = f"{server.origin}{PATH}"
    site.resource_metadata = {"resource": url}
    named = LoginServer(name="path", url=url, is_trusted=True)
    redirect_uri = "http://localhost:8283/v1/tools/mcp/oauth/callback"
    challenge = (
        f'Bearer resource_metadata="{server.origin}/.well-known/oauth-protected-resource/mcp"'
    )
    begun = await mcp_logins.begin(
        secret_services, ACTOR, named, redirect_uri=redirect_uri, challenge=challenge
    )

    with use_app(secret_services) as app:
        async with connect(app) as client:
            answer = await client.get(site.approve(begun.authorization_url))

    assert answer.json() == {
        "status": "success",
        "message": "Authorization successful",
        "server_url": f"{server.origin}/{MASK}",
    }
