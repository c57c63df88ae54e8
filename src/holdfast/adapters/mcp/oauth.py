"""The steps of a login, over the public functions of the SDK: discovery (RFC 9728, RFC 8414), registration (RFC 7591), PKCE
(RFC 7636), resources (RFC 8707) and the issuer of the callback (RFC 9207).

Not the SDK's ``OAuthClientProvider``: it keeps the verifier and the state in memory, and would not survive a restart. Texts
of errors are our own, since those of the SDK quote what the authorization server sent.
"""

import secrets
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

from httpx2 import Response
from mcp.client.auth.oauth2 import PKCEParameters
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import DEFAULT_GRANT_TYPES, OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from msgspec.structs import replace
from pydantic import AnyHttpUrl, ConfigDict, TypeAdapter

from holdfast.adapters.mcp.oauth_client import authenticate, find_client
from holdfast.adapters.mcp.oauth_requests import OAuthRequests
from holdfast.adapters.mcp.oauth_tokens import check_refused, read_tokens
from holdfast.core.mcp_addresses import show_address
from holdfast.core.mcp_sessions import McpSession
from holdfast.errors import LoginFailed, LoginRefused
from holdfast.ports.mcp_authorization import AuthorizationRequest, LoginTarget, Tokens
from holdfast.ports.outgoing import OutgoingResponse

_STATE_BYTES: Final = 32
# Rendered as the SDK's models render URLs, so that texts can be compared.
_URL: Final = TypeAdapter(AnyHttpUrl, config=ConfigDict(url_preserve_empty_path=True))


class OAuth:
    def __init__(self, requests: OAuthRequests) -> None:
        self._requests = requests

    async def begin(self, target: LoginTarget) -> AuthorizationRequest:
        # As it is written in the registration: authorization servers compare texts.
        target = replace(target, redirect_uri=str(_URL.validate_python(target.redirect_uri)))
        # It gets the tokens.
        self._requests.check_secure(target.server_url)
        challenge = to_sdk(OutgoingResponse(401, {"www-authenticate": target.challenge}, b""))
        resource = await self._find_resource(target, challenge)
        server = await self._find_server(target, resource)
        _check_pkce(target, server)
        token_endpoint = _endpoint(
            server.token_endpoint if server else None, target.server_url, "/token"
        )
        page = _endpoint(
            server.authorization_endpoint if server else None, target.server_url, "/authorize"
        )
        # Before the user is asked for anything.
        for endpoint in (token_endpoint, page):
            self._requests.check_secure(endpoint)
        scope = _choose_scope(challenge, resource, server, target.earlier_scope)
        client = await find_client(self._requests, target, server, scope)
        pkce = PKCEParameters.generate()
        request = AuthorizationRequest(
            url="",
            state=secrets.token_urlsafe(_STATE_BYTES),
            code_verifier=pkce.code_verifier,
            token_endpoint=token_endpoint,
            client_id=client.client_id,
            client_secret=client.client_secret,
            client_auth_method=client.auth_method,
            issuer=None if server is None else str(server.issuer),
            must_name_issuer=bool(server and server.authorization_response_iss_parameter_supported),
            resource=None if resource is None else str(resource.resource),
            scope=scope,
            redirect_uri=target.redirect_uri,
        )
        return _with_url(request, page, pkce.code_challenge)

    async def exchange(self, session: McpSession, code: str, issuer: str | None) -> Tokens:
        _check_issuer(session, issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": session.redirect_uri,
            "code_verifier": session.secrets.code_verifier or "",
        }
        return read_tokens(await self._ask_for_tokens(session, form))

    async def refresh(self, session: McpSession) -> Tokens:
        if session.secrets.refresh_token is None:
            raise LoginRefused("The authorization server gave no refresh token.")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": session.secrets.refresh_token,
        }
        response = await self._ask_for_tokens(session, form)
        check_refused(response)
        return read_tokens(response)

    async def _ask_for_tokens(self, session: McpSession, form: dict[str, str]) -> OutgoingResponse:
        if session.resource is not None:
            form["resource"] = session.resource
        headers = authenticate(session, form)
        return await self._requests.post_form(session.token_endpoint, headers, form)

    async def _find_resource(
        self, target: LoginTarget, challenge: Response
    ) -> ProtectedResourceMetadata | None:
        """What the MCP server says about itself; None for a server of the time before it could."""
        named = extract_resource_metadata_from_www_auth(challenge)
        failed_status: int | None = None
        for url in build_protected_resource_metadata_discovery_urls(named, target.server_url):
            response = await self._get_document(url)
            if response.status_code >= 500 or response.status_code == 429:
                failed_status = response.status_code
            found = await handle_protected_resource_response(response)
            if found is not None:
                _check_resource(target, found)
                return found
        if failed_status is not None:
            # It says nothing about whether there is such a document, so older ways are not tried.
            raise LoginFailed(
                f"The MCP server at {_show(target, target.server_url)} could not say who gives access to it "
                f"(HTTP {failed_status})."
            )
        return None

    async def _find_server(
        self, target: LoginTarget, resource: ProtectedResourceMetadata | None
    ) -> OAuthMetadata | None:
        """The metadata of the authorization server; None if the MCP server is one itself, of the time before metadata."""
        named = None if resource is None else str(resource.authorization_servers[0])
        issuer = named or _origin(target.server_url)
        for url in build_oauth_authorization_server_metadata_discovery_urls(
            named, target.server_url
        ):
            is_usable, found = await handle_auth_metadata_response(await self._get_document(url))
            if found is not None:
                _check_metadata_issuer(target, found, issuer, is_exact=named is not None)
                return found
            if not is_usable:
                break
        else:
            if named is None:
                return None
        raise LoginFailed(
            f"The authorization server {_show(target, issuer)} has no metadata that can be used."
        )

    async def _get_document(self, url: str) -> Response:
        headers = create_oauth_metadata_request(url).headers
        version = {name: value for name, value in headers.items() if name.startswith("mcp-")}
        return to_sdk(await self._requests.get(url, version))


def to_sdk(response: OutgoingResponse) -> Response:
    """The response as the functions of the SDK take it."""
    kept = ("www-authenticate", "content-type")
    headers = {name: response.headers[name] for name in kept if response.headers.get(name)}
    return Response(response.status, headers=headers, content=response.body)


def _show(target: LoginTarget, url: object) -> str:
    """An address that a text of an error names: also those of its authorization server may repeat what is secret."""
    return show_address(str(url), is_configured=target.is_trusted)


def _check_resource(target: LoginTarget, found: ProtectedResourceMetadata) -> None:
    asked = resource_url_from_server_url(target.server_url)
    if not check_resource_allowed(
        requested_resource=asked, configured_resource=str(found.resource)
    ):
        raise LoginFailed(
            f"The MCP server at {_show(target, target.server_url)} says that it is another one, "
            f"{_show(target, found.resource)}: no token is asked for."
        )


def _check_metadata_issuer(
    target: LoginTarget, found: OAuthMetadata, expected: str, *, is_exact: bool
) -> None:
    """RFC 8414 §3.3. An origin may be written with a slash at its end or without."""
    issuer = str(found.issuer)
    if issuer != expected and (is_exact or not issuers_match(issuer, expected)):
        raise LoginFailed(
            f"The metadata of the authorization server {_show(target, expected)} are those of another one, "
            f"{_show(target, issuer)}."
        )


def _check_pkce(target: LoginTarget, server: OAuthMetadata | None) -> None:
    """MCP forbids to go on without PKCE. A server of the time before metadata cannot say whether it has it."""
    if server is not None and "S256" not in (server.code_challenge_methods_supported or ()):
        raise LoginFailed(
            f"The authorization server {_show(target, server.issuer)} does not say that it supports PKCE with S256, "
            "which MCP needs."
        )


def _check_issuer(session: McpSession, named: str | None) -> None:
    """RFC 9207 §2.4: a code of another authorization server must not be sent to this one."""
    if named is None and session.must_name_issuer:
        raise LoginFailed("The callback does not say which authorization server it comes from.")
    if named is not None and named != session.issuer:
        raise LoginFailed("The callback comes from another authorization server.")


def _choose_scope(
    challenge: Response,
    resource: ProtectedResourceMetadata | None,
    server: OAuthMetadata | None,
    earlier: str | None,
) -> str | None:
    wanted = get_client_metadata_scopes(
        extract_scope_from_www_auth(challenge), resource, server, list(DEFAULT_GRANT_TYPES)
    )
    if extract_field_from_www_auth(challenge, "error") == "insufficient_scope":
        wanted = union_scopes(earlier, wanted)
    # An empty scope is left out.
    return wanted or None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return str(_URL.validate_python(f"{parts.scheme}://{parts.netloc}"))


def _endpoint(named: AnyHttpUrl | None, server_url: str, usual: str) -> str:
    """An endpoint that the metadata name, or where it was before there were metadata."""
    return urljoin(server_url, usual) if named is None else str(named)


def _with_url(
    request: AuthorizationRequest, page: str, code_challenge: str
) -> AuthorizationRequest:
    query = {
        "response_type": "code",
        "client_id": request.client_id,
        "redirect_uri": request.redirect_uri,
        "state": request.state,
        "code_challenge": code_challenge,
        "code_challenge_method": "S256",
    }
    if request.resource is not None:
        query["resource"] = request.resource
    if request.scope is not None:
        query["scope"] = request.scope
        if "offline_access" in request.scope.split():
            # OpenID Connect gives a refresh token only then.
            query["prompt"] = "consent"
    separator = "&" if urlsplit(page).query else "?"
    return replace(request, url=f"{page}{separator}{urlencode(query)}")
