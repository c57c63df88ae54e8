"""A real OAuth authorization server in front of an MCP server of a test, at the same address.

    with McpTestServer() as server:
        authorization = AuthorizationServer(server)       # from now on the MCP server wants tokens of this one
        callback_url = authorization.approve(authorization_url)

It registers clients, checks PKCE, rotates refresh tokens, and revokes all tokens of a login if a refresh token is used
twice. A test says what else it does: ``answers`` replaces the answer of a path, ``metadata`` and ``resource_metadata``
replace fields of the documents.
"""

import asyncio
import base64
import hashlib
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from tests.support.mcp_server import McpAnswer, McpRequest, McpTestServer
from tests.support.waiting import WAIT_SECONDS

RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource/mcp"
METADATA: Final = "/.well-known/oauth-authorization-server"


@dataclass(frozen=True, slots=True)
class _Grant:
    """A code: what the user has allowed, and how the client must prove that it began the login."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str | None
    scope: str
    family: str


@dataclass(slots=True)
class _Client:
    redirect_uris: list[str]
    method: str
    secret: str | None
    fields: dict[str, Any] = field(default_factory=dict)


class AuthorizationServer:
    def __init__(self, server: McpTestServer, *, expires_in: int | None = 3600) -> None:
        self.server = server
        self.expires_in = expires_in
        # How clients prove who they are: none, client_secret_post or client_secret_basic.
        self.method = "none"
        # Whether callbacks name the issuer.
        self.names_issuer = True
        self.scope = "tools:read"
        # What replaces fields of the documents; None takes one away.
        self.metadata: dict[str, Any] = {}
        self.resource_metadata: dict[str, Any] = {}
        # By path: an answer in place of the usual one.
        self.answers: dict[str, Response] = {}
        # By path: where else the same is.
        self.aliases: dict[str, str] = {}
        self.clients: dict[str, _Client] = {}
        # The form of each request for tokens.
        self.token_requests: list[dict[str, str]] = []
        self.authorize_requests: list[dict[str, str]] = []
        self.document_requests: list[str] = []
        # Everything that nobody but the client may see.
        self.secrets: set[str] = set()
        self.access_tokens: dict[str, str] = {}
        self.revoked_families: set[str] = set()
        # Refreshes wait until it is set.
        self.may_refresh = threading.Event()
        self.may_refresh.set()
        # So do the exchanges of codes.
        self.may_exchange = threading.Event()
        self.may_exchange.set()
        self._codes: dict[str, _Grant] = {}
        self._refresh_tokens: dict[str, _Grant] = {}
        self._used_refresh_tokens: set[str] = set()
        self._lock = threading.Lock()
        self._app = Starlette(
            routes=[
                Route("/.well-known/{document:path}", self._get_document),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._give_tokens, methods=["POST"]),
            ]
        )
        server.other_paths = self
        server.intercept = self._guard

    @property
    def issuer(self) -> str:
        return self.server.origin

    @property
    def refreshes(self) -> list[dict[str, str]]:
        return [form for form in self.token_requests if form["grant_type"] == "refresh_token"]

    def approve(self, authorization_url: str) -> str:
        """What the browser of a user does who allows everything: return the address that it comes back to."""
        return self._redirect(authorization_url, self._approve)

    def deny(self, authorization_url: str) -> str:
        def refuse(query: Mapping[str, str]) -> dict[str, str]:
            return {"error": "access_denied", "error_description": "The user said <no>."}

        return self._redirect(authorization_url, refuse)

    def end_access_tokens(self) -> None:
        """Accept no access token that was given so far. Refresh tokens stay."""
        self.access_tokens.clear()

    def end_logins(self) -> None:
        self.access_tokens.clear()
        self.revoked_families |= {grant.family for grant in self._refresh_tokens.values()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in self.aliases:
            scope = {**scope, "path": self.aliases[path], "raw_path": self.aliases[path].encode()}
        answer = self.answers.get(path)
        await (answer or self._app)(scope, receive, send)

    def _guard(self, request: McpRequest) -> McpAnswer | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token in self.access_tokens:
            return None
        challenge = f'Bearer resource_metadata="{self.server.origin}{RESOURCE_METADATA}"'
        return McpAnswer(401, b"{}", {"www-authenticate": challenge})

    async def _get_document(self, request: Request) -> Response:
        self.document_requests.append(request.url.path)
        if request.url.path == RESOURCE_METADATA:
            document = {
                "resource": self.server.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": [self.scope],
            } | self.resource_metadata
        elif request.url.path == METADATA:
            document = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": [self.method],
                "authorization_response_iss_parameter_supported": self.names_issuer,
            } | self.metadata
        else:
            return Response(status_code=404)
        return JSONResponse({key: value for key, value in document.items() if value is not None})

    async def _register(self, request: Request) -> Response:
        fields = await request.json()
        client_id = f"client-{secrets.token_hex(8)}"
        method = fields.get("token_endpoint_auth_method") or self.method
        secret = None if method == "none" else self._new_secret("client-secret")
        self.clients[client_id] = _Client(fields["redirect_uris"], method, secret, fields)
        answer = fields | {"client_id": client_id, "token_endpoint_auth_method": method}
        return JSONResponse(answer | ({"client_secret": secret} if secret else {}), 201)

    async def _authorize(self, request: Request) -> Response:
        return RedirectResponse(self.approve(str(request.url)), 302)

    def _redirect(self, url: str, answer: Any) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        self.authorize_requests.append(query)
        client = self.clients[query["client_id"]]
        assert query["redirect_uri"] in client.redirect_uris
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        given = {"state": query["state"]} | answer(query)
        if self.names_issuer:
            given["iss"] = self.issuer
        return f"{query['redirect_uri']}?{urlencode(given)}"

    def _approve(self, query: Mapping[str, str]) -> dict[str, str]:
        code = self._new_secret("code")
        self._codes[code] = _Grant(
            client_id=query["client_id"],
            redirect_uri=query["redirect_uri"],
            challenge=query["code_challenge"],
            resource=query.get("resource"),
            scope=query.get("scope", ""),
            family=secrets.token_hex(8),
        )
        return {"code": code}

    async def _give_tokens(self, request: Request) -> Response:
        form = {
            name: values[0] for name, values in parse_qs((await request.body()).decode()).items()
        }
        self.token_requests.append(form)
        client_id = self._authenticate(request, form)
        if client_id is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        is_refresh = form["grant_type"] == "refresh_token"
        permission = self.may_refresh if is_refresh else self.may_exchange
        await asyncio.to_thread(permission.wait, WAIT_SECONDS)
        with self._lock:
            grant = self._find_grant(client_id, form)
        if grant is None or grant.family in self.revoked_families:
            return JSONResponse({"error": "invalid_grant", "error_description": f"No: {form}"}, 400)
        return JSONResponse(self._new_tokens(grant))

    def _authenticate(self, request: Request, form: Mapping[str, str]) -> str | None:
        header = request.headers.get("authorization", "")
        client_id, sent, method = form.get("client_id"), form.get("client_secret"), "none"
        if header.startswith("Basic "):
            pair = base64.b64decode(header.removeprefix("Basic ")).decode().split(":")
            (client_id, sent), method = map(unquote, pair), "client_secret_basic"
        elif sent is not None:
            method = "client_secret_post"
        client = self.clients.get(client_id or "")
        if client is None or (client.method, client.secret) != (method, sent):
            return None
        return client_id

    def _find_grant(self, client_id: str, form: Mapping[str, str]) -> _Grant | None:
        if form["grant_type"] == "refresh_token":
            token = form["refresh_token"]
            grant = self._refresh_tokens.get(token)
            if grant is not None and token in self._used_refresh_tokens:
                self.revoked_families.add(grant.family)
            self._used_refresh_tokens.add(token)
        else:
            grant = self._codes.pop(form["code"], None)
            proof = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(proof).decode().rstrip("=")
            if grant and (grant.challenge, grant.redirect_uri) != (
                challenge,
                form["redirect_uri"],
            ):
                return None
        if grant and (grant.client_id, grant.resource) != (client_id, form.get("resource")):
            return None
        return grant

    def _new_tokens(self, grant: _Grant) -> dict[str, Any]:
        access, refresh = self._new_secret("access"), self._new_secret("refresh")
        self.access_tokens[access] = grant.family
        self._refresh_tokens[refresh] = grant
        tokens = {
            "access_token": access,
            "token_type": "bearer",
            "refresh_token": refresh,
            "expires_in": self.expires_in,
            "scope": grant.scope,
        }
        return {key: value for key, value in tokens.items() if value is not None}

    def _new_secret(self, kind: str) -> str:
        made = f"{kind}-{secrets.token_urlsafe(24)}"
        self.secrets.add(made)
        return made
