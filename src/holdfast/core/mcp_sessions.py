"""OAuth sessions: what a user has allowed at an MCP server, with the tokens for it (tools-v1 §1.9)."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class SessionStatus(StrEnum):
    # The user has not come back from the authorization page yet.
    PENDING = "pending"
    AUTHORIZED = "authorized"
    # The authorization failed.
    ERROR = "error"
    # Its tokens are no longer accepted: the user must log in again.
    ENDED = "ended"


class SessionSecrets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Secret. ``code_verifier`` belongs to a pending session, the tokens to an authorized one."""

    code_verifier: str | None = None
    client_secret: str | None = None
    access_token: str | None = None
    refresh_token: str | None = None

    def __repr__(self) -> str:
        return "SessionSecrets(…)"


class McpSession(Struct, frozen=True, kw_only=True):
    """Everything that the callback of another process, or a refresh long afterwards, needs."""

    id: str
    organization_id: str
    user_id: str
    server_url: str
    status: SessionStatus
    created_at: datetime
    updated_at: datetime
    # Ties the callback to the session. None once it was used.
    state: str | None = None
    # None: for a server that is not stored.
    server_id: str | None = None
    server_name: str = ""
    secrets: SessionSecrets = SessionSecrets()
    authorization_url: str = ""
    token_endpoint: str = ""
    # How the client authenticates itself there: none, client_secret_post or client_secret_basic.
    client_auth_method: str = "none"
    issuer: str | None = None
    # The protected resource that the tokens are for (RFC 8707); None: the parameter is left out.
    resource: str | None = None
    client_id: str = ""
    redirect_uri: str = ""
    scope: str | None = None
    # When the access token ends; None: the authorization server does not say.
    expires_at: datetime | None = None
    # A server of this deployment refreshes the tokens until then; nobody else may.
    refresh_ends_at: datetime | None = None
    # Whether the callback must name the issuer (RFC 9207).
    must_name_issuer: bool = False
    # The operator named the server: its own host is not judged by the rule for addresses that callers name.
    is_trusted: bool = False
    # Why the status is ``error`` or ``ended``.
    failure: str | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether the access token can be used, as far as is known here."""
        return self.expires_at is None or now < self.expires_at

    def ends_before(self, moment: datetime) -> bool:
        return self.expires_at is not None and self.expires_at < moment
