"""This server as a client of an authorization server: how it gets known there, and how it proves who it is."""

import base64
from typing import Final, Literal
from urllib.parse import quote, urljoin, urlsplit

from httpx2 import Response
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    TokenEndpointAuthMethod,
)
from msgspec import Struct
from pydantic import AnyUrl

from holdfast.adapters.mcp.oauth_requests import OAuthRequests
from holdfast.core.addresses import is_loopback
from holdfast.core.mcp_addresses import show_address
from holdfast.core.mcp_sessions import McpSession
from holdfast.errors import LoginFailed
from holdfast.ports.mcp_authorization import LoginTarget, OAuthClient

CLIENT_NAME: Final = "Holdfast"

_NONE: Final = "none"
_POST: Final = "client_secret_post"
_BASIC: Final = "client_secret_basic"
# In the order in which they are preferred: a secret that does not exist cannot leak.
_METHODS: Final[tuple[TokenEndpointAuthMethod, ...]] = (
    "none",
    "client_secret_basic",
    "client_secret_post",
)


class Client(Struct, frozen=True, kw_only=True):
    """``auth_method``: one of none, client_secret_post and client_secret_basic."""

    client_id: str
    client_secret: str | None
    auth_method: str

    def __repr__(self) -> str:
        return "Client(…)"


async def find_client(
    requests: OAuthRequests, target: LoginTarget, server: OAuthMetadata | None, scope: str | None
) -> Client:
    """The client that the user names, or a new one."""
    if target.client is not None:
        return _use_named(target.client, server)
    if server is not None and server.registration_endpoint is None:
        shown = show_address(str(server.issuer), is_configured=target.is_trusted)
        raise LoginFailed(
            f"The authorization server {shown} lets no client register itself. Register one there with the "
            f"redirect address {target.redirect_uri}, and log in with its id."
        )
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(target.redirect_uri)],
        client_name=CLIENT_NAME,
        scope=scope,
        token_endpoint_auth_method=_choose_method(server),
        application_type=_application_type(target.redirect_uri),
    )
    origin = urljoin(target.server_url, "/")
    request = create_client_registration_request(server, metadata, origin)
    response = await requests.post(
        str(request.url), {"content-type": "application/json"}, request.content
    )
    info = await _read_registration(Response(response.status, content=response.body))
    return Client(
        client_id=info.client_id,
        client_secret=info.client_secret,
        auth_method=_find_method(info),
    )


def authenticate(session: McpSession, form: dict[str, str]) -> dict[str, str]:
    """Add what proves to the token endpoint who asks: fields to the form, or the headers that are returned."""
    secret = session.secrets.client_secret
    if session.client_auth_method == _BASIC and secret is not None:
        # RFC 6749 §2.3.1: both parts are encoded first.
        pair = f"{quote(session.client_id, safe='')}:{quote(secret, safe='')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    form["client_id"] = session.client_id
    if session.client_auth_method == _POST and secret is not None:
        form["client_secret"] = secret
    return {}


def _use_named(client: OAuthClient, server: OAuthMetadata | None) -> Client:
    method = _NONE
    if client.client_secret is not None:
        supported = server and server.token_endpoint_auth_methods_supported
        method = _BASIC if supported is None or _BASIC in supported else _POST
    return Client(
        client_id=client.client_id, client_secret=client.client_secret, auth_method=method
    )


def _choose_method(server: OAuthMetadata | None) -> TokenEndpointAuthMethod | None:
    """None: the authorization server chooses."""
    supported = server and server.token_endpoint_auth_methods_supported
    return next((method for method in _METHODS if method in (supported or ())), None)


def _find_method(info: OAuthClientInformationFull) -> str:
    """RFC 7591 §2: a client with a secret that was told no method uses the basic one."""
    if info.token_endpoint_auth_method is not None:
        return info.token_endpoint_auth_method
    return _NONE if info.client_secret is None else _BASIC


def _application_type(redirect_uri: str) -> Literal["native", "web"]:
    return "native" if is_loopback(urlsplit(redirect_uri).hostname or "") else "web"


async def _read_registration(response: Response) -> OAuthClientInformationFull:
    # Without the SDK's text: it quotes the answer, which may have a secret in it.
    try:
        info = await handle_registration_response(response)
        check_registration_usable(info)
    except OAuthFlowError:
        status = response.status_code
        why = "its answer cannot be used" if status in (200, 201) else f"HTTP {status}"
        raise LoginFailed(
            f"The authorization server did not register this client: {why}."
        ) from None
    return info
