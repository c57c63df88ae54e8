"""Renewing the tokens of a login: by one task of one server of the deployment at a time. The others wait for what it stores,
because a refresh token that is used twice takes the whole login with it.
"""

import asyncio
import itertools
import logging
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.mcp_sessions import McpSession, SessionSecrets, SessionStatus
from holdfast.errors import (
    CallerError,
    LoginFailed,
    LoginRefused,
    McpLoginEnded,
    McpUnavailable,
    StoreUnavailable,
)
from holdfast.ports.bell import Watch, login_topic
from holdfast.ports.mcp_authorization import Tokens
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction

# A token that ends sooner is renewed before it is used.
MARGIN_SECONDS: Final = 60.0
# How long one server may renew a token, by the clock of the database: those of servers differ. Longer than its request
# may take; if the server dies, another one tries then.
LOCK_SECONDS: Final = 30.0
# Those who wait for another server look at the store so often, in case that no bell is heard.
LOOK_SECONDS: Final = 1.0
# How long they wait: until the lock of a server that died has ended, and another one has renewed the token.
WAIT_SECONDS: Final = 45.0
# As long as the lock holds.
STORE_ATTEMPTS: Final = 10
STORE_RETRY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def with_tokens(session: McpSession, tokens: Tokens, now: datetime) -> McpSession:
    """The session with new tokens. What the authorization server does not say stays as it was (RFC 6749 §6)."""
    ends_in = None if tokens.seconds is None else timedelta(seconds=tokens.seconds)
    return replace(
        session,
        status=SessionStatus.AUTHORIZED,
        updated_at=now,
        secrets=SessionSecrets(
            client_secret=session.secrets.client_secret,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or session.secrets.refresh_token,
        ),
        scope=tokens.scope or session.scope,
        expires_at=None if ends_in is None else now + ends_in,
        failure=None,
    )


async def find_valid_token(
    services: Services, session: McpSession, *, renew: bool, rejected: str | None
) -> str | None:
    """Return the token of an authorized session, renewed if that is needed; None if the login has ended and nobody has
    asked to renew it."""
    token = session.secrets.access_token
    now = services.clock.now()
    if renew:
        if rejected is not None and token != rejected:
            return token
    elif not session.ends_before(now + timedelta(seconds=MARGIN_SECONDS)) or (
        session.secrets.refresh_token is None and session.is_valid(now)
    ):
        return token
    found = await _renew(services, session)
    if found is None or found.status is not SessionStatus.AUTHORIZED:
        if renew:
            raise McpLoginEnded(session.server_name)
        # Without a token the server says that it wants one, and with that the caller is told.
        return None
    if _has_changed(found, session) or (not renew and found.is_valid(services.clock.now())):
        return found.secrets.access_token
    raise McpUnavailable(
        session.server_name, f"its login could not be renewed. {found.failure or ''}".rstrip()
    )


class _Attempt(Struct, frozen=True):
    """``session``: as it is stored now; None if it is gone. ``is_busy``: another task renews its tokens."""

    session: McpSession | None
    is_busy: bool = False


async def _renew(services: Services, before: McpSession) -> McpSession | None:
    """Return the session once somebody has tried to renew its tokens; None if it is gone."""
    with services.bell.watch(login_topic(before.id)) as watch:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (attempt := await _attempt_to_its_end(services, before)).is_busy:
                    found = await _wait(services, before, watch)
                    if found is None or _has_changed(found, before) or _is_free(found):
                        return found
        except TimeoutError:
            raise McpUnavailable(
                before.server_name, "its login is being renewed, which takes too long"
            ) from None
    return attempt.session


async def _wait(services: Services, before: McpSession, watch: Watch) -> McpSession | None:
    """Wait while another task renews the tokens, and return the session then; or with the lock of a server that died."""

    def look(tx: Transaction) -> tuple[McpSession | None, datetime]:
        return tx.mcp_sessions.get(before.id), tx.servers.now()

    while True:
        await watch.wait(LOOK_SECONDS)
        found, now = await services.store.read(look)
        if found is None or found.refresh_ends_at is None or _has_changed(found, before):
            return found
        if found.refresh_ends_at <= now:
            return found


async def _attempt_to_its_end(services: Services, before: McpSession) -> _Attempt:
    """A call that needs the token may be cancelled at any time, but not this: the authorization server has taken the old
    token back as soon as it has the request."""
    return await services.unfinished_work.finish(_attempt(services, before))


async def _attempt(services: Services, before: McpSession) -> _Attempt:
    def begin(tx: Transaction) -> _Attempt:
        now = tx.servers.now()
        ends_at = now + timedelta(seconds=LOCK_SECONDS)
        is_ours = tx.mcp_sessions.begin_refresh(before.id, now, ends_at)
        session = tx.mcp_sessions.get(before.id)
        if is_ours and session is not None and _has_changed(session, before):
            tx.mcp_sessions.end_refresh(session)
        return _Attempt(session, is_busy=not is_ours)

    begun = await services.store.write(begin)
    if begun.is_busy or begun.session is None or _has_changed(begun.session, before):
        return begun
    session = await _refresh(services, begun.session)
    await _store(services, session)
    services.bell.ring(login_topic(session.id))
    return _Attempt(session)


async def _refresh(services: Services, session: McpSession) -> McpSession:
    """Return the session with new tokens, or with the reason why there are none."""
    try:
        tokens = await services.mcp_authorization.refresh(session)
    except LoginRefused as error:
        log.warning("mcp.login_ended", extra={"server": session.server_name, "why": str(error)})
        return replace(
            session,
            status=SessionStatus.ENDED,
            updated_at=services.clock.now(),
            secrets=SessionSecrets(),
            failure=str(error),
        )
    except (LoginFailed, CallerError) as error:
        log.warning(
            "mcp.login_not_renewed", extra={"server": session.server_name, "why": str(error)}
        )
        return replace(session, failure=str(error))
    return with_tokens(session, tokens, services.clock.now())


async def _store(services: Services, session: McpSession) -> None:
    """New tokens that cannot be stored are lost, and the login with them."""
    for attempt in itertools.count(1):
        try:
            if not await services.store.write(lambda tx: tx.mcp_sessions.end_refresh(session)):
                # The login was deleted, or this took longer than the lock holds.
                log.warning("mcp.tokens_dropped", extra={"server": session.server_name})
        except StoreUnavailable:
            if attempt == STORE_ATTEMPTS:
                raise
            await services.clock.sleep(STORE_RETRY_SECONDS)
        else:
            return


def _has_changed(session: McpSession, before: McpSession) -> bool:
    return (
        session.status is not before.status
        or session.secrets.access_token != before.secrets.access_token
    )


def _is_free(session: McpSession) -> bool:
    """Nobody renews its tokens, so whoever did has failed."""
    return session.refresh_ends_at is None
