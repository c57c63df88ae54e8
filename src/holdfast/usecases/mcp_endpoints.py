"""How an MCP server is reached on behalf of a caller: its address and headers, or its command, with all values filled in.

Filled-in values are secrets: they are in the endpoint only, never in a message or a log line.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from holdfast.core import mcp_headers
from holdfast.core.mcp_servers import AUTHORIZATION, Endpoint, McpServer, Transport
from holdfast.core.mcp_templates import fill
from holdfast.errors import (
    AddressForbidden,
    InvalidArgument,
    McpLoginEnded,
    McpUnauthorized,
    McpUnavailable,
    ToolError,
)
from holdfast.ports.mcp import ConfiguredServer
from holdfast.ports.services import Services
from holdfast.usecases import mcp_logins

T = TypeVar("T")

STDIO_DISABLED: Final = (
    "MCP stdio servers are disabled. Set MCP_DISABLE_STDIO=false to enable them. "
    "They run programs on the machine of this server. Without that setting, the operator can name them in the file of "
    "HOLDFAST_MCP_CONFIG."
)


class McpCaller(Struct, frozen=True, kw_only=True):
    """On whose behalf a server is reached."""

    organization_id: str
    user_id: str
    # Is sent as a header.
    agent_id: str | None = None
    # The agent's secrets, which placeholders stand for.
    values: Mapping[str, str] = {}
    # A placeholder without a value and without a default is a ToolError. Otherwise its text is sent as it is.
    is_strict: bool = False

    def __repr__(self) -> str:
        return f"McpCaller(user_id={self.user_id!r}, agent_id={self.agent_id!r}, …)"


async def use(
    services: Services,
    server: McpServer,
    caller: McpCaller,
    action: Callable[[Endpoint], Awaitable[T]],
) -> T:
    """Run the action on the endpoint of the server. If the server no longer accepts the token of the caller's login, the
    token is renewed and the action runs once more. McpLoginEnded if that cannot be done."""
    token = await _find_token(services, server, caller)
    endpoint = build_endpoint(services, server, caller, token)
    try:
        return await action(endpoint)
    except McpUnauthorized as error:
        renewed = await _renew_token(services, server, caller, token, error)
        if renewed is None or renewed == token:
            raise
        endpoint = build_endpoint(services, server, caller, renewed)
    return await action(endpoint)


def build_endpoint(
    services: Services, server: McpServer, caller: McpCaller, token: str | None
) -> Endpoint:
    """``token``: that of the caller's login at the server. What the server's own settings say goes before it."""
    filling = _Filling(server.name, caller)
    if server.is_configured:
        configured = find_configured(services, server)
        return _build_configured(server, configured, filling, token)
    if server.transport is Transport.STDIO:
        if not services.mcp_options.stdio_over_api:
            raise InvalidArgument(STDIO_DISABLED)
        return Endpoint(
            server_id=server.id,
            server_name=server.name,
            transport=Transport.STDIO,
            command=server.command,
            args=server.args,
            env=filling.fill_all(server.secrets.env or {}),
            agent_id=caller.agent_id,
        )
    return Endpoint(
        server_id=server.id,
        server_name=server.name,
        transport=server.transport,
        url=server.server_url,
        headers=filling.build_headers(
            server.secrets.custom_headers or {},
            server.auth_header,
            server.secrets.auth_token,
            token,
        ),
        agent_id=caller.agent_id,
        user_id=None if token is None else caller.user_id,
    )


def find_configured(services: Services, server: McpServer) -> ConfiguredServer:
    """What the operator's file says about the server."""
    configured = services.mcp_options.configured.get(server.name)
    if configured is None:
        raise McpUnavailable(
            server.name, "it is no longer in the operator's file (HOLDFAST_MCP_CONFIG)"
        )
    return configured


def find_url(services: Services, server: McpServer) -> str | None:
    """Where the server is; None for a program."""
    if not server.is_configured:
        return server.server_url
    configured = services.mcp_options.configured.get(server.name)
    return None if configured is None else configured.url


async def _find_token(
    services: Services,
    server: McpServer,
    caller: McpCaller,
    *,
    renew: bool = False,
    rejected: str | None = None,
) -> str | None:
    url = find_url(services, server)
    if url is None or has_credentials(services, server) or not _is_secure(services, server, url):
        return None
    return await mcp_logins.find_token(
        services, caller.organization_id, caller.user_id, url, renew=renew, rejected=rejected
    )


def _is_secure(services: Services, server: McpServer, url: str) -> bool:
    """Whether the token of a login may be sent there. Where it may not, none can be begun, which says why."""
    if server.is_configured:
        return True
    try:
        services.outgoing.check_secure(url)
    except AddressForbidden:
        return False
    return True


async def _renew_token(
    services: Services,
    server: McpServer,
    caller: McpCaller,
    rejected: str | None,
    refusal: McpUnauthorized,
) -> str | None:
    try:
        return await _find_token(services, server, caller, renew=True, rejected=rejected)
    except McpLoginEnded:
        # A new login needs what the server said. The name of this server, if several have the URL.
        raise McpLoginEnded(server.name, refusal.challenge) from refusal


def has_credentials(services: Services, server: McpServer) -> bool:
    """Whether the server's own settings say how requests are authorized."""
    headers: Mapping[str, str] = server.secrets.custom_headers or {}
    if server.is_configured:
        headers = find_configured(services, server).headers
    return bool(server.secrets.auth_token) or any(
        mcp_headers.is_authorization(name) for name in headers
    )


def _build_configured(
    server: McpServer, configured: ConfiguredServer, filling: "_Filling", token: str | None
) -> Endpoint:
    if configured.command is not None:
        return Endpoint(
            server_id=server.id,
            server_name=server.name,
            transport=Transport.STDIO,
            command=configured.command,
            args=configured.args,
            env=filling.fill_all(configured.env),
            agent_id=filling.caller.agent_id,
            is_trusted=True,
        )
    return Endpoint(
        server_id=server.id,
        server_name=server.name,
        transport=Transport.SSE if configured.is_sse else Transport.STREAMABLE_HTTP,
        url=configured.url,
        headers=filling.build_headers(configured.headers, None, None, token),
        agent_id=filling.caller.agent_id,
        user_id=None if token is None else filling.caller.user_id,
        is_trusted=True,
    )


class _Filling(Struct, frozen=True):
    """Fills in the placeholders of one server for one caller."""

    server_name: str
    caller: McpCaller

    def fill_all(self, templates: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, self.fill(template)) for name, template in templates.items())

    def fill(self, template: str) -> str:
        filled = fill(template, self.caller.values)
        if filled.missing and self.caller.is_strict:
            raise ToolError(
                f"The MCP server {self.server_name} needs the secret {filled.missing[0]}, "
                "which this agent does not have."
            )
        return filled.text

    def build_headers(
        self,
        custom: Mapping[str, str],
        auth_header: str | None,
        auth_token: str | None,
        login_token: str | None,
    ) -> tuple[tuple[str, str], ...]:
        authentication = []
        if auth_token:
            value = mcp_headers.add_scheme(auth_header, self.fill(auth_token))
            authentication.append((auth_header or AUTHORIZATION, value))
        elif login_token:
            authentication.append((AUTHORIZATION, f"Bearer {login_token}"))
        headers = mcp_headers.merge_headers(
            dict(self.fill_all(custom)), authentication, self.caller.agent_id
        )
        self._check(headers)
        return headers

    def _check(self, headers: tuple[tuple[str, str], ...]) -> None:
        for name, value in headers:
            fault = mcp_headers.find_fault(name, value)
            if fault is not None:
                text = f"The MCP server {self.server_name} cannot be used: {fault}."
                raise ToolError(text) if self.caller.is_strict else InvalidArgument(text)
