"""Logs users in to MCP servers. The SDK, which knows the protocol, is imported with the first login."""

from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from holdfast.adapters.mcp.oauth_requests import OAuthRequests
from holdfast.adapters.outgoing.lookup import Lookup, Resolve, system_resolve
from holdfast.core.addresses import AllowedAddresses, parse_destination
from holdfast.core.mcp_sessions import McpSession
from holdfast.loading import load_in_thread
from holdfast.ports.mcp_authorization import AuthorizationRequest, LoginTarget, Tokens

if TYPE_CHECKING:
    from holdfast.adapters.mcp.oauth import OAuth

_EVERYTHING: Final = AllowedAddresses(networks=(ip_network("0.0.0.0/0"), ip_network("::/0")))


class SdkMcpAuthorization:
    def __init__(self, allowed: AllowedAddresses, resolve: Resolve = system_resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._requests = self._open_requests(allowed)
        self._oauth: type[OAuth] | None = None

    async def begin(self, target: LoginTarget) -> AuthorizationRequest:
        oauth = await self._open(target.server_url, is_trusted=target.is_trusted)
        return await oauth.begin(target)

    async def exchange(self, session: McpSession, code: str, issuer: str | None) -> Tokens:
        oauth = await self._open(session.server_url, is_trusted=session.is_trusted)
        return await oauth.exchange(session, code, issuer)

    async def refresh(self, session: McpSession) -> Tokens:
        oauth = await self._open(session.server_url, is_trusted=session.is_trusted)
        return await oauth.refresh(session)

    async def _open(self, server_url: str, *, is_trusted: bool) -> "OAuth":
        if self._oauth is None:
            self._oauth = await load_in_thread(_load_oauth)
        return self._oauth(self._trust(server_url) if is_trusted else self._requests)

    def _trust(self, server_url: str) -> OAuthRequests:
        """The operator named this server, but not the others to which it sends users."""
        host = parse_destination(server_url, _EVERYTHING).host
        return self._open_requests(replace(self._allowed, hosts=self._allowed.hosts | {host}))

    def _open_requests(self, allowed: AllowedAddresses) -> OAuthRequests:
        return OAuthRequests(allowed, Lookup(allowed, self._resolve))


def _load_oauth() -> "type[OAuth]":
    from holdfast.adapters.mcp.oauth import OAuth  # noqa: PLC0415 - most servers never log in

    return OAuth
