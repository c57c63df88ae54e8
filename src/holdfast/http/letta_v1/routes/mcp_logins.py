"""Connecting to an MCP server while somebody watches, the end of a login in the browser, and how logins stand
(tools-v1 §1.9)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from html import escape
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from holdfast.core.agents import Actor
from holdfast.core.mcp_servers import McpServer
from holdfast.http.dependencies import ActorDep, ServicesDep
from holdfast.http.json_body import JsonRoute
from holdfast.http.json_response import (
    describe_empty,
    describe_response,
    empty_response,
    json_response,
)
from holdfast.http.letta_v1.from_wire.mcp_servers import old_new_mcp_server
from holdfast.http.letta_v1.parameters.ids import McpServerId
from holdfast.http.letta_v1.schemas.mcp_logins import CallbackAnswer, McpLogin
from holdfast.http.letta_v1.schemas.old_mcp_servers import OldMcpServer
from holdfast.http.letta_v1.to_wire.mcp_logins import callback_answer, connect_event, login_state
from holdfast.http.sse import MEDIA_TYPE, EventStream, encode_frames
from holdfast.ports.mcp_authorization import OAuthClient
from holdfast.ports.services import Services
from holdfast.usecases import mcp_connect, mcp_logins, mcp_servers
from holdfast.usecases.mcp_connect import Connection
from holdfast.usecases.mcp_logins import Callback

router = APIRouter(prefix="/v1/mcp-servers", tags=["mcp-servers"])
old_router = APIRouter(
    prefix="/v1/tools/mcp/servers", tags=["mcp-servers"], route_class=JsonRoute, deprecated=True
)
callback_router = APIRouter(prefix="/v1/tools/mcp/oauth", tags=["tools"])

CALLBACK_PATH: Final = "/v1/tools/mcp/oauth/callback"

# A client that was registered at the authorization server by hand. Headers, because addresses are logged by proxies.
_CLIENT_ID_HEADER: Final = "x-oauth-client-id"
_CLIENT_SECRET_HEADER: Final = "x-oauth-client-secret"  # noqa: S105 - the name of a header

CONNECT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "What happens, one JSON object each; the last one is success or error.",
        "content": {MEDIA_TYPE: {}},
    }
}

# The page has no scripts, no styles and no links; what it shows comes from elsewhere.
_PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
# The address has a code in it.
_CALLBACK_HEADERS: Final = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body>
</html>
"""


@router.get("/connect/{mcp_server_id}", responses=CONNECT_RESPONSES)
async def connect_mcp_server(
    mcp_server_id: McpServerId, request: Request, services: ServicesDep, actor: ActorDep
) -> Response:
    """Connect to the server, and begin a login if it asks for one. Headers X-OAuth-Client-Id and X-OAuth-Client-Secret
    name a client that was registered by hand, for authorization servers where none can register itself."""
    server = await services.store.read(
        lambda tx: tx.mcp_servers.get(actor.organization_id, mcp_server_id)
    )
    return _stream(services, actor, server, request)


@old_router.post("/connect", responses=CONNECT_RESPONSES)
async def connect_old_mcp_server(
    body: OldMcpServer, request: Request, services: ServicesDep, actor: ActorDep
) -> Response:
    """The same for a server that is not stored."""
    server = mcp_servers.build_server(services, actor, old_new_mcp_server(body))
    return _stream(services, actor, server, request, is_stored=False)


@router.get("/{mcp_server_id}/login", responses=describe_response(McpLogin))
async def retrieve_mcp_login(
    mcp_server_id: McpServerId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Not in V1: how the user's login at the server stands."""
    session = await mcp_connect.find_login(services, actor, mcp_server_id)
    return json_response(login_state(session))


@router.delete("/{mcp_server_id}/login", status_code=204, responses=describe_empty())
async def delete_mcp_login(
    mcp_server_id: McpServerId, services: ServicesDep, actor: ActorDep
) -> Response:
    """Not in V1: forget the user's login at the server, with its tokens."""
    await mcp_connect.forget_login(services, actor, mcp_server_id)
    return empty_response()


@callback_router.get("/callback", responses=describe_response(CallbackAnswer))
async def complete_mcp_login(
    request: Request,
    services: ServicesDep,
    *,
    state: Annotated[str | None, Query()] = None,
    code: Annotated[str | None, Query()] = None,
    error: Annotated[str | None, Query()] = None,
    error_description: Annotated[str | None, Query()] = None,
    iss: Annotated[str | None, Query(description="The authorization server (RFC 9207).")] = None,
) -> Response:
    """Where browsers come back to from an authorization server. It needs no password: the state says who it is for."""
    callback = Callback(
        state=state, code=code, error=error, error_description=error_description, issuer=iss
    )
    answer = callback_answer(await mcp_logins.finish(services, callback))
    if "text/html" in request.headers.get("accept", ""):
        return _render_page(answer)
    return json_response(answer, headers=_CALLBACK_HEADERS)


def _stream(
    services: Services, actor: Actor, server: McpServer, request: Request, *, is_stored: bool = True
) -> EventStream:
    connection = Connection(
        actor=actor,
        server=server,
        redirect_uri=_redirect_uri(services, request),
        client=_named_client(request),
        is_stored=is_stored,
    )
    return EventStream(_chunks(services, connection))


async def _chunks(services: Services, connection: Connection) -> AsyncGenerator[bytes, None]:
    async with aclosing(mcp_connect.connect(services, connection)) as steps:
        async for step in steps:
            yield encode_frames([connect_event(step)])


def _redirect_uri(services: Services, request: Request) -> str:
    base = services.mcp_options.public_url or str(request.base_url)
    return base.rstrip("/") + CALLBACK_PATH


def _named_client(request: Request) -> OAuthClient | None:
    client_id = request.headers.get(_CLIENT_ID_HEADER)
    if not client_id:
        return None
    secret = request.headers.get(_CLIENT_SECRET_HEADER)
    return OAuthClient(client_id=client_id, client_secret=secret or None)


def _render_page(answer: CallbackAnswer) -> Response:
    if answer.status == "success":
        title = "The login is complete"
        text = "You can close this page."
    else:
        title = "The login has failed"
        text = answer.message
    page = _PAGE.format(title=escape(title), text=escape(text))
    return Response(page, media_type="text/html", headers=_PAGE_HEADERS | _CALLBACK_HEADERS)
