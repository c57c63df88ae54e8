"""Logins of users at MCP servers: OAuth, begun by one request and completed by another, which may reach another server of
the deployment or come after a restart. Everything that is needed meanwhile is in the stored session.

The tokens of a login are renewed in ``mcp_renewal``.
"""

import logging
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.agents import Actor
from holdfast.core.ids import Kind
from holdfast.core.mcp_addresses import show_address
from holdfast.core.mcp_sessions import McpSession, SessionSecrets, SessionStatus
from holdfast.errors import CallerError, LoginFailed, McpLoginEnded, NotFound, StoreUnavailable
from holdfast.ports.bell import login_topic
from holdfast.ports.mcp_authorization import AuthorizationRequest, LoginTarget, OAuthClient, Tokens
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_renewal

# A login that nobody has completed by then has to begin again.
PENDING_SECONDS: Final = 900.0
# What an authorization server says of an error is shown and kept up to this length.
MAX_ERROR_CHARACTERS: Final = 500

MISSING_STATE: Final = "Missing state parameter"
INVALID_STATE: Final = "Invalid or expired state parameter"
STORE_FAILED: Final = "Failed to store authorization code"
MISSING_CODE: Final = "Missing authorization code"
CALLBACK_FAILED: Final = "OAuth callback failed"
LOGIN_DELETED: Final = "The login was deleted."

log = logging.getLogger(__name__)


class LoginServer(Struct, frozen=True, kw_only=True):
    """The MCP server that a user logs in to."""

    name: str
    url: str
    # None: it is not stored.
    id: str | None = None
    is_trusted: bool = False


class Callback(Struct, frozen=True, kw_only=True):
    """What the authorization server has the browser bring back. ``code`` is secret."""

    state: str | None = None
    code: str | None = None
    error: str | None = None
    error_description: str | None = None
    issuer: str | None = None

    def __repr__(self) -> str:
        return "Callback(…)"


class LoginResult(Struct, frozen=True):
    """``failure`` None: the login is complete. ``server_url`` as it may be shown to anybody."""

    failure: str | None = None
    server_url: str | None = None


async def begin(
    services: Services,
    actor: Actor,
    server: LoginServer,
    *,
    redirect_uri: str,
    challenge: str = "",
    client: OAuthClient | None = None,
) -> McpSession:
    """Begin a login: the user's browser is to open the ``authorization_url`` of the session that is returned."""
    earlier = await services.store.read(
        lambda tx: tx.mcp_sessions.find_authorized(actor.organization_id, actor.user_id, server.url)
    )
    target = LoginTarget(
        server_url=server.url,
        redirect_uri=redirect_uri,
        challenge=challenge,
        is_trusted=server.is_trusted,
        earlier_scope=None if earlier is None else earlier.scope,
        client=client,
    )
    request = await services.mcp_authorization.begin(target)
    session = _build_session(services, actor, server, request)
    oldest = session.created_at - timedelta(seconds=PENDING_SECONDS)

    def store(tx: Transaction) -> None:
        tx.mcp_sessions.delete_pending_before(oldest)
        tx.mcp_sessions.add(session)

    await services.store.write(store)
    return session


async def finish(services: Services, callback: Callback) -> LoginResult:
    """Complete the login that the callback belongs to. Nobody is authenticated here: whoever knows the state, which is
    random and can be used once, comes from the authorization server."""
    if not callback.state:
        return LoginResult(MISSING_STATE)
    try:
        # State and code work once, so nobody could begin it again.
        return await services.unfinished_work.finish(_finish(services, callback.state, callback))
    except StoreUnavailable as error:
        log.info("mcp.login_failed", extra={"why": str(error)})
        return LoginResult(STORE_FAILED)


async def _finish(services: Services, state: str, callback: Callback) -> LoginResult:
    session = await _take(services, state)
    if session is None:
        return LoginResult(INVALID_STATE)
    try:
        failure = await _complete(services, session, callback)
    except NotFound:
        # Meanwhile: by its user, or with its server.
        failure = LOGIN_DELETED
    finally:
        services.bell.ring(login_topic(session.id))
    if failure is not None:
        log.info("mcp.login_failed", extra={"server": session.server_name, "why": failure})
    shown = show_address(session.server_url, is_configured=session.is_trusted)
    return LoginResult(failure, shown)


async def find_token(
    services: Services,
    organization_id: str,
    user_id: str,
    server_url: str,
    *,
    renew: bool = False,
    rejected: str | None = None,
) -> str | None:
    """Return the access token of the user's login at this URL; None if there is no login. A token that is about to end is
    renewed before.

    ``renew``: the server no longer accepts the token; with ``rejected``, this one, so that it is not renewed again if it
    has been meanwhile. Then McpLoginEnded if the login has ended, McpUnavailable if it cannot be renewed for now."""

    def find(tx: Transaction) -> McpSession | None:
        return tx.mcp_sessions.find_latest(organization_id, user_id, server_url)

    session = await services.store.read(find)
    if session is not None and session.status is SessionStatus.ENDED and renew:
        raise McpLoginEnded(session.server_name)
    if session is None or session.status is not SessionStatus.AUTHORIZED:
        return None
    return await mcp_renewal.find_valid_token(services, session, renew=renew, rejected=rejected)


async def find_login(
    services: Services, organization_id: str, user_id: str, server_url: str
) -> McpSession | None:
    """Return the user's login at this URL: the one whose tokens are used, or else the last one."""
    return await services.store.read(
        lambda tx: tx.mcp_sessions.find_latest(organization_id, user_id, server_url)
    )


async def forget(services: Services, organization_id: str, user_id: str, server_url: str) -> bool:
    """Delete the user's logins at this URL, with their tokens. False if there was none."""
    return await services.store.write(
        lambda tx: tx.mcp_sessions.delete_all(organization_id, user_id, server_url)
    )


async def _take(services: Services, state: str) -> McpSession | None:
    # Nobody is authenticated yet: what is made up costs a read, and no write.
    if "\0" in state or not await services.store.read(lambda tx: tx.mcp_sessions.has_state(state)):
        return None
    oldest = services.clock.now() - timedelta(seconds=PENDING_SECONDS)

    def take(tx: Transaction) -> McpSession | None:
        tx.mcp_sessions.delete_pending_before(oldest)
        return tx.mcp_sessions.take_by_state(state)

    return await services.store.write(take)


def _find_fault(callback: Callback) -> str | None:
    if callback.error:
        description = f" - {callback.error_description}" if callback.error_description else ""
        return f"OAuth error: {callback.error}{description}"[:MAX_ERROR_CHARACTERS]
    return None if callback.code else MISSING_CODE


async def _complete(services: Services, session: McpSession, callback: Callback) -> str | None:
    """Store how the login has ended, and return why it failed. NotFound if it is no longer stored."""
    failure = _find_fault(callback)
    if failure is None:
        try:
            tokens = await services.mcp_authorization.exchange(
                session, callback.code or "", callback.issuer
            )
        except (LoginFailed, CallerError) as error:
            failure = f"{CALLBACK_FAILED}: {error}"
        else:
            await _save_tokens(services, session, tokens)
            return None
    await _save_failure(services, replace(session, status=SessionStatus.ERROR, failure=failure))
    return failure


async def _save_tokens(services: Services, session: McpSession, tokens: Tokens) -> None:
    authorized = mcp_renewal.with_tokens(session, tokens, services.clock.now())

    def store(tx: Transaction) -> None:
        tx.mcp_sessions.save(authorized)
        tx.mcp_sessions.delete_others(authorized)

    await services.store.write(store)
    log.info("mcp.logged_in", extra={"server": session.server_name})


async def _save_failure(services: Services, session: McpSession) -> None:
    saved = replace(session, updated_at=services.clock.now(), secrets=SessionSecrets(), state=None)
    await services.store.write(lambda tx: tx.mcp_sessions.save(saved))


def _build_session(
    services: Services, actor: Actor, server: LoginServer, request: AuthorizationRequest
) -> McpSession:
    now = services.clock.now()
    return McpSession(
        id=services.ids.new_id(Kind.MCP_SESSION),
        organization_id=actor.organization_id,
        user_id=actor.user_id,
        server_url=server.url,
        status=SessionStatus.PENDING,
        created_at=now,
        updated_at=now,
        state=request.state,
        server_id=server.id,
        server_name=server.name,
        secrets=SessionSecrets(
            code_verifier=request.code_verifier, client_secret=request.client_secret
        ),
        authorization_url=request.url,
        token_endpoint=request.token_endpoint,
        client_auth_method=request.client_auth_method,
        issuer=request.issuer,
        resource=request.resource,
        client_id=request.client_id,
        redirect_uri=request.redirect_uri,
        scope=request.scope,
        must_name_issuer=request.must_name_issuer,
        is_trusted=server.is_trusted,
    )
