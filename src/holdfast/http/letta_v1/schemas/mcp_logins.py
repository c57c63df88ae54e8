"""Connecting to an MCP server, and logging in to it (tools-v1 §1.9)."""

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType


class ConnectionAttempt(
    Struct, frozen=True, kw_only=True, tag_field="event", tag="connection_attempt"
):
    server_name: str


class ConnectSuccess(Struct, frozen=True, kw_only=True, tag_field="event", tag="success"):
    # As the server lists them.
    tools: list[dict[str, Any]]


class ConnectError(Struct, frozen=True, kw_only=True, tag_field="event", tag="error"):
    message: str


class OAuthRequired(Struct, frozen=True, kw_only=True, tag_field="event", tag="oauth_required"):
    message: str = "OAuth authentication required"


class AuthorizationUrl(
    Struct, frozen=True, kw_only=True, tag_field="event", tag="authorization_url"
):
    url: str
    session_id: str


class WaitingForAuth(Struct, frozen=True, kw_only=True, tag_field="event", tag="waiting_for_auth"):
    message: str = "Waiting for user authorization..."


ConnectEvent = (
    ConnectionAttempt
    | ConnectSuccess
    | ConnectError
    | OAuthRequired
    | AuthorizationUrl
    | WaitingForAuth
)


class CallbackAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a browser that comes back from an authorization server."""

    status: Literal["success", "error"]
    message: str
    server_url: str | UnsetType = UNSET


class McpLogin(Struct, frozen=True, kw_only=True):
    """How the user's login at an MCP server stands. Not in V1. ``none``: there was none; ``pending``: the user has not come
    back from the authorization page; ``error``: the last attempt failed; ``ended``: its tokens are no longer accepted."""

    status: Literal["none", "pending", "authorized", "error", "ended"]
    scope: str | None = None
    # When the access token ends. It is renewed by then, if the authorization server has allowed that.
    expires_at: datetime | None = None
    updated_at: datetime | None = None
    # Why the status is error or ended.
    failure: str | None = None
