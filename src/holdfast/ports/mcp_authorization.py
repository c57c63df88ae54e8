"""OAuth with the authorization server of an MCP server: what it takes to log a user in, and to keep the login alive.

No step depends on what another one kept in memory, so each may be done by another server of the deployment.
"""

from typing import Final, Protocol

from msgspec import Struct

from holdfast.core.mcp_sessions import McpSession
from holdfast.errors import LoginFailed

_CANNOT_LOG_IN: Final = "This server cannot log in to MCP servers."


class OAuthClient(Struct, frozen=True, kw_only=True):
    """A client that somebody has registered at the authorization server by hand."""

    client_id: str
    client_secret: str | None = None

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r}, …)"


class LoginTarget(Struct, frozen=True, kw_only=True):
    """What a user logs in to, and where the browser goes afterwards."""

    server_url: str
    redirect_uri: str
    # The WWW-Authenticate header with which the server asked for credentials.
    challenge: str = ""
    # The operator named the server, so its own host is not judged by the rule for addresses that callers name.
    is_trusted: bool = False
    # What the user has allowed before: it is asked for again if the server wants more than that.
    earlier_scope: str | None = None
    # None: the client is registered by this server, at each login.
    client: OAuthClient | None = None


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """A login that has begun. ``url`` is for the user's browser; ``code_verifier`` and ``client_secret`` are secret."""

    url: str
    redirect_uri: str
    state: str
    code_verifier: str
    token_endpoint: str
    client_id: str
    client_secret: str | None = None
    client_auth_method: str = "none"
    issuer: str | None = None
    # Whether the callback must name the issuer (RFC 9207).
    must_name_issuer: bool = False
    resource: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return "AuthorizationRequest(…)"


class Tokens(Struct, frozen=True, kw_only=True):
    """Secret. ``refresh_token`` None: the one that was used stays valid. ``seconds`` None: nobody says how long the access
    token is valid."""

    access_token: str
    refresh_token: str | None = None
    scope: str | None = None
    seconds: int | None = None

    def __repr__(self) -> str:
        return "Tokens(…)"


class McpAuthorization(Protocol):
    """All requests obey the rule for addresses that callers name, and are bounded in size and time.

    LoginFailed if it does not work, AddressForbidden if an address is refused. No message has a secret in it."""

    async def begin(self, target: LoginTarget) -> AuthorizationRequest:
        """Find the authorization server, register a client there, and return what the user's browser is sent to."""
        ...

    async def exchange(self, session: McpSession, code: str, issuer: str | None) -> Tokens:
        """Get tokens for the code with which the browser came back. ``issuer``: who the callback says that it is from."""
        ...

    async def refresh(self, session: McpSession) -> Tokens:
        """Get new tokens for the refresh token. LoginRefused if the authorization server no longer accepts it; any other
        LoginFailed may pass."""
        ...


class _NoMcpAuthorization:
    async def begin(self, target: LoginTarget) -> AuthorizationRequest:
        del target
        raise LoginFailed(_CANNOT_LOG_IN)

    async def exchange(self, session: McpSession, code: str, issuer: str | None) -> Tokens:
        del session, code, issuer
        raise LoginFailed(_CANNOT_LOG_IN)

    async def refresh(self, session: McpSession) -> Tokens:
        del session
        raise LoginFailed(_CANNOT_LOG_IN)


NO_MCP_AUTHORIZATION: McpAuthorization = _NoMcpAuthorization()
