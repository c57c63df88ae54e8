"""Connecting to an MCP server while somebody watches: what happens, step by step, and a login if the server wants one
(tools-v1 §1.9)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import Struct

from holdfast.core.agents import Actor
from holdfast.core.mcp_servers import McpServer, RemoteTool
from holdfast.core.mcp_sessions import McpSession, SessionStatus
from holdfast.errors import (
    AddressForbidden,
    BackendError,
    CallerError,
    HoldfastError,
    InvalidArgument,
    LoginFailed,
    McpError,
    McpTimedOut,
    McpUnauthorized,
)
from holdfast.ports.bell import login_topic
from holdfast.ports.mcp_authorization import OAuthClient
from holdfast.ports.services import Services
from holdfast.usecases import mcp_endpoints, mcp_logins, mcp_refresh
from holdfast.usecases.mcp_endpoints import McpCaller
from holdfast.usecases.mcp_logins import LoginServer

# How long somebody waits for the end of a login. It can still be completed afterwards.
LOGIN_WAIT_SECONDS: Final = 300.0
# In case that no bell is heard.
LOOK_SECONDS: Final = 1.0

NO_OAUTH_FOR_STDIO: Final = "OAuth not supported for stdio"


class Connecting(Struct, frozen=True):
    server_name: str


class Connected(Struct, frozen=True):
    """The last step. ``tools``: as the server lists them now."""

    tools: Sequence[RemoteTool]


class ConnectFailed(Struct, frozen=True):
    """The last step."""

    message: str


class LoginNeeded(Struct, frozen=True):
    pass


class LoginBegun(Struct, frozen=True):
    """The user is to open ``url``."""

    url: str
    session_id: str


class LoginAwaited(Struct, frozen=True):
    pass


Step = Connecting | Connected | ConnectFailed | LoginNeeded | LoginBegun | LoginAwaited


class Connection(Struct, frozen=True, kw_only=True):
    """What is connected to, for whom, and how a login goes on."""

    actor: Actor
    server: McpServer
    redirect_uri: str
    client: OAuthClient | None = None
    # Otherwise its tools are not kept either.
    is_stored: bool = True


async def connect(services: Services, connection: Connection) -> AsyncGenerator[Step, None]:
    """Connect, and log in if the server asks for it. Whoever stops to listen does not stop the login."""
    try:
        async with aclosing(_connect(services, connection)) as steps:
            async for step in steps:
                yield step
    finally:
        if not connection.is_stored:
            await services.mcp.forget(connection.server.id)


async def _connect(services: Services, connection: Connection) -> AsyncGenerator[Step, None]:
    yield Connecting(connection.server.name)
    outcome = await _connect_once(services, connection)
    if not isinstance(outcome, McpUnauthorized):
        yield outcome
        return
    yield LoginNeeded()
    try:
        session = await _begin_login(services, connection, outcome)
    except (LoginFailed, CallerError) as error:
        yield ConnectFailed(f"Failed to trigger OAuth: {error}")
        return
    yield LoginBegun(session.authorization_url, session.id)
    yield LoginAwaited()
    yield await _complete(services, connection, session)


async def find_login(services: Services, actor: Actor, server_id: str) -> McpSession | None:
    """Return how the user's login at a stored server stands; None if there is none."""
    url = await _find_stored_url(services, actor, server_id)
    if url is None:
        return None
    return await mcp_logins.find_login(services, actor.organization_id, actor.user_id, url)


async def forget_login(services: Services, actor: Actor, server_id: str) -> None:
    """Delete the user's login at a stored server. Its other servers with this URL lose it too."""
    url = await _find_stored_url(services, actor, server_id)
    if url is not None:
        await mcp_logins.forget(services, actor.organization_id, actor.user_id, url)
    await services.mcp.forget(server_id)


async def _find_stored_url(services: Services, actor: Actor, server_id: str) -> str | None:
    server = await services.store.read(
        lambda tx: tx.mcp_servers.get(actor.organization_id, server_id)
    )
    return mcp_endpoints.find_url(services, server)


async def _connect_once(
    services: Services, connection: Connection
) -> Connected | ConnectFailed | McpUnauthorized:
    """McpUnauthorized if a login may help."""
    try:
        return Connected(await _read_tools(services, connection))
    except McpUnauthorized as error:
        obstacle = _find_obstacle(services, connection.server)
        return error if obstacle is None else ConnectFailed(obstacle)
    except HoldfastError as error:
        return ConnectFailed(_describe_failure(error))


async def _complete(services: Services, connection: Connection, session: McpSession) -> Step:
    try:
        failure = await _wait_for_login(services, session)
        if failure is not None:
            return ConnectFailed(failure)
        return Connected(await _read_tools(services, connection))
    except HoldfastError as error:
        return ConnectFailed(_describe_failure(error))


async def _read_tools(services: Services, connection: Connection) -> Sequence[RemoteTool]:
    """What the server lists for this user. New tools are stored; missing ones stay, since others may see more."""
    caller = McpCaller(
        organization_id=connection.actor.organization_id, user_id=connection.actor.user_id
    )
    server = connection.server
    if connection.is_stored:
        server = await services.store.read(
            lambda tx: tx.mcp_servers.get(connection.actor.organization_id, connection.server.id)
        )
    listed = await mcp_endpoints.use(services, server, caller, services.mcp.list_tools)
    if connection.is_stored:
        listing = await mcp_refresh.check_listed(listed)
        await mcp_refresh.store_listing(services, connection.actor, server, listing, deletes=False)
    return listed


def _find_obstacle(services: Services, server: McpServer) -> str | None:
    """Why a login would not help."""
    if mcp_endpoints.find_url(services, server) is None:
        return NO_OAUTH_FOR_STDIO
    if mcp_endpoints.has_credentials(services, server):
        return (
            "Connection failed: 401 Unauthorized: the server refuses the credentials that are set for it, and while "
            "they are set, no login is used."
        )
    return None


async def _begin_login(
    services: Services, connection: Connection, refusal: McpUnauthorized
) -> McpSession:
    server = connection.server
    return await mcp_logins.begin(
        services,
        connection.actor,
        LoginServer(
            name=server.name,
            url=mcp_endpoints.find_url(services, server) or "",
            id=server.id if connection.is_stored else None,
            is_trusted=server.is_configured,
        ),
        redirect_uri=connection.redirect_uri,
        challenge=refusal.challenge,
        client=connection.client,
    )


async def _wait_for_login(services: Services, session: McpSession) -> str | None:
    """Wait for the callback, which any server may get. Return why the login failed; None if it is complete."""
    with services.bell.watch(login_topic(session.id)) as watch:
        try:
            async with asyncio.timeout(LOGIN_WAIT_SECONDS):
                while True:
                    found = await services.store.read(lambda tx: tx.mcp_sessions.get(session.id))
                    if found is None:
                        return mcp_logins.LOGIN_DELETED
                    if found.status is not SessionStatus.PENDING:
                        return found.failure
                    await watch.wait(LOOK_SECONDS)
        except TimeoutError:
            return f"Timeout waiting for OAuth callback after {LOGIN_WAIT_SECONDS:.0f} seconds"


def _describe_failure(error: HoldfastError) -> str:
    match error:
        case AddressForbidden() | InvalidArgument():
            return str(error)
        case BackendError():
            return f"Internal error: {error}"
        case McpError() if not isinstance(error, McpTimedOut):
            return f"Connection failed: {error.why}"
        case _:
            return f"Connection failed: {error}"
