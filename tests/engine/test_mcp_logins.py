"""Logins at MCP servers: completed once, renewed once per deployment, and ended with a sentence. Several servers are several
bundles of services without a common bell, over one store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec import structs
from starlette.responses import JSONResponse
from tests.doubles.clock import MovableClock
from tests.doubles.mcp import ScriptedMcp
from tests.support.authorization_server import AuthorizationServer
from tests.support.mcp_server import McpTestServer
from tests.support.rig import ACTOR, WAIT_SECONDS, Rig
from tests.support.values import ident
from tests.support.waiting import eventually

from holdfast.adapters.mcp.authorization import SdkMcpAuthorization
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.assembly import running_server
from holdfast.config import Settings
from holdfast.core.addresses import parse_allowed
from holdfast.core.mcp_servers import McpServer, Transport
from holdfast.core.mcp_sessions import McpSession, SessionStatus
from holdfast.errors import McpLoginEnded, McpUnavailable
from holdfast.ports.bell import login_topic
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.usecases import mcp_logins, mcp_renewal
from holdfast.usecases.mcp_logins import Callback, LoginResult, LoginServer

CALLBACK = "http://127.0.0.1:8283/v1/tools/mcp/oauth/callback"
SOON = 30
SLOW = 20
LATER = 3600


class Deployment:
    """Two servers, a user, and an MCP server to log in to."""

    def __init__(self, store: SqlStore, site: AuthorizationServer) -> None:
        self.clock = MovableClock()
        self.site = site
        self.servers = [self._build(store), self._build(store)]

    def _build(self, store: SqlStore) -> Services:
        login = SdkMcpAuthorization(parse_allowed(["127.0.0.1"]))
        return replace(Rig(store, clock=self.clock).services, mcp_authorization=login)

    async def begin(self) -> McpSession:
        server = LoginServer(name="notes", url=self.site.server.url)
        return await mcp_logins.begin(self.servers[0], ACTOR, server, redirect_uri=CALLBACK)

    async def finish(self, callback_url: str, **fields: str | None) -> LoginResult:
        """Another server than the one that has begun gets the callback."""
        query = dict(parse_qsl(urlsplit(callback_url).query))
        query["issuer"] = query.pop("iss", "")
        return await mcp_logins.finish(
            self.servers[1],
            Callback(**{**query, **fields}),
        )

    async def log_in(self) -> str:
        begun = await self.begin()
        done = await self.finish(self.site.approve(begun.authorization_url))
        assert done == LoginResult(None, self.site.server.url)
        token = (await self.session()).secrets.access_token
        assert token is not None
        return token

    async def find_token(self, number: int = 0, **wishes: Any) -> str | None:
        return await mcp_logins.find_token(
            self.servers[number % 2],
            ACTOR.organization_id,
            ACTOR.user_id,
            self.site.server.url,
            **wishes,
        )

    async def session(self) -> McpSession:
        found = await mcp_logins.find_login(
            self.servers[0], ACTOR.organization_id, ACTOR.user_id, self.site.server.url
        )
        assert found is not None
        return found

    async def find_tokens(self, count: int, **wishes: Any) -> set[str | None]:
        calls = (self.find_token(number, **wishes) for number in range(count))
        async with asyncio.timeout(WAIT_SECONDS):
            return set(await asyncio.gather(*calls))

    async def take_lock(self) -> McpSession:
        """Begin to renew the tokens, as a server that dies then."""
        session = await self.session()

        def begin(tx: Transaction) -> datetime:
            now = tx.servers.now()
            ends_at = now + timedelta(seconds=mcp_renewal.LOCK_SECONDS)
            assert tx.mcp_sessions.begin_refresh(session.id, now, ends_at)
            return ends_at

        ends_at = await self.servers[1].store.write(begin)
        return structs.replace(session, refresh_ends_at=ends_at)

    async def end_lock(self, lock: McpSession) -> None:
        """Let its time be over, by the clock of the database."""
        ends_at = lock.refresh_ends_at
        assert ends_at is not None
        assert await self.servers[1].store.write(
            lambda tx: tx.mcp_sessions.begin_refresh(lock.id, ends_at, tx.servers.now())
        )


@pytest.fixture
async def server() -> AsyncIterator[McpTestServer]:
    async with McpTestServer() as server:
        yield server


@pytest.fixture
def site(server: McpTestServer) -> AuthorizationServer:
    return AuthorizationServer(server)


@pytest.fixture
def deployment(any_store: SqlStore, site: AuthorizationServer) -> Deployment:
    return Deployment(any_store, site)


def read_callback(url: str) -> Callback:
    query = dict(parse_qsl(urlsplit(url).query))
    return Callback(state=query["state"], code=query["code"], issuer=query["iss"])


async def test_a_login_is_found_by_its_user_alone(deployment: Deployment) -> None:
    assert await deployment.find_token() is None

    token = await deployment.log_in()

    assert await deployment.find_tokens(4) == {token}
    assert token in deployment.site.access_tokens
    assert deployment.site.refreshes == []
    someone = "user-00000000-0000-4000-8000-000000000001"
    for organization_id, user_id, url in (
        (ACTOR.organization_id, someone, deployment.site.server.url),
        ("org-00000000-0000-4000-8000-000000000001", ACTOR.user_id, deployment.site.server.url),
        (ACTOR.organization_id, ACTOR.user_id, f"{deployment.site.server.url}/other"),
    ):
        assert (
            await mcp_logins.find_token(deployment.servers[0], organization_id, user_id, url)
            is None
        )


async def test_fifty_calls_on_two_servers_renew_a_token_once(deployment: Deployment) -> None:
    deployment.site.expires_in = SOON
    old = await deployment.log_in()
    deployment.site.expires_in = LATER

    tokens = await deployment.find_tokens(50)

    assert len(tokens) == len(deployment.site.refreshes) == 1
    assert old not in tokens
    assert tokens <= set(deployment.site.access_tokens)
    assert deployment.site.revoked_families == set()


async def test_a_renewal_closes_no_connection_of_other_users(deployment: Deployment) -> None:
    """A new token is another connection by itself."""
    mcp = ScriptedMcp()
    deployment.servers = [replace(services, mcp=mcp) for services in deployment.servers]
    stored = McpServer(
        id=ident("mcp_server", 1),
        organization_id=ACTOR.organization_id,
        name="notes",
        transport=Transport.STREAMABLE_HTTP,
        created_at=deployment.clock.now(),
        updated_at=deployment.clock.now(),
    )
    await deployment.servers[0].store.write(lambda tx: tx.mcp_servers.add(stored))
    named = LoginServer(name="notes", url=deployment.site.server.url, id=stored.id)
    begun = await mcp_logins.begin(deployment.servers[0], ACTOR, named, redirect_uri=CALLBACK)
    deployment.site.expires_in = SOON
    await deployment.finish(deployment.site.approve(begun.authorization_url))

    await deployment.find_tokens(2)

    assert len(deployment.site.refreshes) > 0
    assert mcp.forgotten == []


async def test_fifty_calls_that_were_refused_renew_the_token_once(deployment: Deployment) -> None:
    old = await deployment.log_in()
    deployment.site.end_access_tokens()

    tokens = await deployment.find_tokens(50, renew=True, rejected=old)

    assert len(deployment.site.refreshes) == 1
    assert tokens == set(deployment.site.access_tokens)
    # One that hears of it late does not do it again.
    assert await deployment.find_tokens(2, renew=True, rejected=old) == tokens
    assert len(deployment.site.refreshes) == 1


async def test_tokens_are_renewed_for_ever(deployment: Deployment) -> None:
    """Each refresh token works once: the new one is kept each time."""
    await deployment.log_in()

    for count in range(1, 6):
        deployment.clock.advance(LATER - 30)
        assert await deployment.find_tokens(4) <= set(deployment.site.access_tokens)
        assert len(deployment.site.refreshes) == count

    assert deployment.site.revoked_families == set()


async def test_a_call_that_is_cancelled_does_not_lose_the_new_token(
    deployment: Deployment,
) -> None:
    deployment.site.expires_in = SOON
    await deployment.log_in()
    deployment.site.expires_in = LATER
    deployment.site.may_refresh.clear()
    call = asyncio.create_task(deployment.find_token())
    await eventually(lambda: len(deployment.site.refreshes) == 1)

    call.cancel()
    deployment.site.may_refresh.set()

    assert await deployment.find_tokens(2) <= set(deployment.site.access_tokens)
    assert len(deployment.site.refreshes) == 1
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.slow
async def test_a_server_that_stops_stores_the_token_that_it_is_renewing(
    site: AuthorizationServer, tmp_path: Path
) -> None:
    settings = Settings.read({"HOLDFAST_ALLOWED_PRIVATE_HOSTS": "127.0.0.1"}, home=tmp_path)
    who = ACTOR.organization_id, ACTOR.user_id, site.server.url
    site.expires_in = SOON
    async with running_server(settings) as running:
        services = running.services
        named = LoginServer(name="notes", url=site.server.url)
        begun = await mcp_logins.begin(services, ACTOR, named, redirect_uri=CALLBACK)
        await mcp_logins.finish(services, read_callback(site.approve(begun.authorization_url)))
        site.expires_in = LATER
        site.may_refresh.clear()
        call = asyncio.create_task(mcp_logins.find_token(services, *who))
        await eventually(lambda: len(site.refreshes) == 1)
        # Whoever waits for it is cancelled first.
        call.cancel()
        running.worker_task.add_done_callback(lambda _: site.may_refresh.set())

    async with running_server(settings) as running:
        assert await mcp_logins.find_token(running.services, *who) in site.access_tokens
    assert len(site.refreshes) == 1
    assert site.revoked_families == set()


async def test_a_server_that_stops_completes_the_login_that_has_its_code(
    deployment: Deployment,
) -> None:
    begun = await deployment.begin()
    deployment.site.may_exchange.clear()
    callback = deployment.site.approve(begun.authorization_url)
    finishing = asyncio.create_task(deployment.finish(callback))
    await eventually(lambda: len(deployment.site.token_requests) == 1)

    finishing.cancel()
    stopping = asyncio.create_task(deployment.servers[1].unfinished_work.wait(WAIT_SECONDS))
    deployment.site.may_exchange.set()
    await stopping

    assert (await deployment.session()).secrets.access_token in deployment.site.access_tokens


async def test_a_stop_waits_no_longer_than_it_may(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished, gate = deployment.servers[0].unfinished_work, asyncio.Event()
    work = asyncio.create_task(unfinished.finish(gate.wait()))
    await asyncio.wait([work], timeout=0)

    await unfinished.wait(0.01)

    (said,) = [record for record in caplog.records if record.msg == "stop.work_unfinished"]
    assert said.__dict__["count"] == 1
    gate.set()
    assert await work


async def test_a_login_that_is_deleted_while_it_is_completed_has_failed(
    deployment: Deployment,
) -> None:
    """By its user, or with its server; whether or not the code was good."""
    for code in ({}, {"code": "made-up"}):
        begun = await deployment.begin()
        deployment.site.may_exchange.clear()
        callback = deployment.site.approve(begun.authorization_url)
        deployment.site.token_requests.clear()
        finishing = asyncio.create_task(deployment.finish(callback, **code))
        await eventually(lambda: len(deployment.site.token_requests) == 1)
        services = deployment.servers[1]
        with services.bell.watch(login_topic(begun.id)) as watch:
            waiting = asyncio.create_task(watch.wait(WAIT_SECONDS))
            await mcp_logins.forget(
                services, ACTOR.organization_id, ACTOR.user_id, deployment.site.server.url
            )
            deployment.site.may_exchange.set()

            assert (await finishing).failure == "The login was deleted."
            await asyncio.wait([waiting], timeout=1)
            assert waiting.done()
        assert await deployment.find_token() is None


async def test_a_token_that_cannot_be_renewed_is_used_while_it_is_valid(
    deployment: Deployment,
) -> None:
    deployment.site.expires_in = SOON
    token = await deployment.log_in()
    deployment.site.answers["/token"] = JSONResponse({"error": "busy"}, 503)
    assert await deployment.find_tokens(6) == {token}

    deployment.clock.advance(SOON)
    with pytest.raises(McpUnavailable, match=r"could not be renewed.*HTTP 503"):
        await deployment.find_token()
    with pytest.raises(McpUnavailable, match="could not be renewed"):
        await deployment.find_token(renew=True, rejected=token)

    # It was a failure that passes.
    del deployment.site.answers["/token"]
    assert await deployment.find_tokens(2) <= set(deployment.site.access_tokens)


async def test_a_login_that_has_ended_is_told_and_its_tokens_are_deleted(
    deployment: Deployment,
) -> None:
    deployment.site.expires_in = SOON
    token = await deployment.log_in()
    deployment.site.end_logins()

    assert await deployment.find_tokens(10) == {None}

    assert len(deployment.site.refreshes) == 1
    session = await deployment.session()
    assert session.status is SessionStatus.ENDED
    assert session.secrets.access_token is session.secrets.refresh_token is None
    with pytest.raises(McpLoginEnded) as ended:
        await deployment.find_token(renew=True, rejected=token)
    assert str(ended.value) == (
        "The login at the MCP server notes has ended. Log in again: holdfast mcp login notes."
    )
    # A new login replaces it.
    deployment.site.expires_in = LATER
    new = await deployment.log_in()
    assert await deployment.find_tokens(2) == {new}
    assert await deployment.find_tokens(2, renew=True, rejected=token) == {new}


async def test_a_login_without_a_refresh_token_ends_with_its_token(
    deployment: Deployment, any_store: SqlStore
) -> None:
    deployment.site.answers["/token"] = JSONResponse(
        {"access_token": "once", "token_type": "Bearer", "expires_in": SOON}
    )
    assert await deployment.log_in() == "once"
    assert await deployment.find_tokens(2) == {"once"}

    deployment.clock.advance(SOON)

    assert await deployment.find_tokens(2) == {None}
    with pytest.raises(McpLoginEnded):
        await deployment.find_token(renew=True)


async def test_a_server_that_died_while_it_renewed_a_token_is_not_waited_for_long(
    deployment: Deployment,
) -> None:
    deployment.site.expires_in = SOON
    await deployment.log_in()
    deployment.site.expires_in = LATER
    lock = await deployment.take_lock()
    # The clock of a server may be slow. That of the database counts.
    deployment.clock.advance(-SLOW)
    call = asyncio.create_task(deployment.find_token())

    await deployment.end_lock(lock)

    async with asyncio.timeout(WAIT_SECONDS):
        assert await call in deployment.site.access_tokens
    assert len(deployment.site.refreshes) == 1


async def test_a_server_that_comes_too_late_does_not_store_its_tokens(
    deployment: Deployment,
) -> None:
    deployment.site.expires_in = SOON
    await deployment.log_in()
    deployment.site.expires_in = LATER
    late = await deployment.take_lock()
    await deployment.end_lock(late)
    token = await deployment.find_token()

    await deployment.servers[1].store.write(lambda tx: tx.mcp_sessions.end_refresh(late))

    assert (await deployment.session()).secrets.access_token == token


async def test_tokens_that_are_not_stored_are_told_in_the_log(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    deployment.site.expires_in = SOON
    await deployment.log_in()
    deployment.site.may_refresh.clear()
    call = asyncio.create_task(deployment.find_token())
    await eventually(lambda: len(deployment.site.refreshes) == 1)
    known = (ACTOR.organization_id, ACTOR.user_id, deployment.site.server.url)
    await mcp_logins.forget(deployment.servers[1], *known)

    deployment.site.may_refresh.set()
    await call

    (said,) = [record for record in caplog.records if record.msg == "mcp.tokens_dropped"]
    assert said.__dict__["server"] == "notes"
    assert await deployment.find_token() is None


async def test_a_state_is_used_once_also_by_callbacks_at_the_same_time(
    deployment: Deployment,
) -> None:
    begun = await deployment.begin()
    callback = deployment.site.approve(begun.authorization_url)

    done = await asyncio.gather(*(deployment.finish(callback) for _ in range(8)))

    assert [result.failure for result in done].count(None) == 1
    assert {result.failure for result in done} == {None, mcp_logins.INVALID_STATE}
    assert len(deployment.site.token_requests) == 1
    assert await deployment.find_token() in deployment.site.access_tokens


async def test_a_login_that_nobody_completes_is_deleted(deployment: Deployment) -> None:
    begun = await deployment.begin()
    callback = deployment.site.approve(begun.authorization_url)
    deployment.clock.advance(mcp_logins.PENDING_SECONDS + 1)

    assert await deployment.finish(callback) == LoginResult(mcp_logins.INVALID_STATE)

    store = deployment.servers[0].store
    assert await store.read(lambda tx: tx.mcp_sessions.get(begun.id)) is None
    assert deployment.site.token_requests == []


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"state": None}, "Missing state parameter"),
        ({"state": ""}, "Missing state parameter"),
        ({"state": "made up"}, "Invalid or expired state parameter"),
        ({"state": "with \0 in it"}, "Invalid or expired state parameter"),
        ({"code": None}, "Missing authorization code"),
        ({"code": None, "error": "access_denied"}, "OAuth error: access_denied"),
        (
            {"error": "access_denied", "error_description": "The user said no."},
            "OAuth error: access_denied - The user said no.",
        ),
        ({"code": "made-up"}, "OAuth callback failed: The authorization server gave no tokens"),
        ({"issuer": "https://x.example"}, "OAuth callback failed: The callback comes from another"),
        ({"issuer": None}, "OAuth callback failed: The callback does not say"),
    ],
)
async def test_a_callback_that_brings_no_code_is_told_why(
    deployment: Deployment, fields: dict[str, str | None], failure: str
) -> None:
    begun = await deployment.begin()
    callback = deployment.site.approve(begun.authorization_url)

    told = (await deployment.finish(callback, **fields)).failure

    assert told is not None
    assert told.startswith(failure)
    assert await deployment.find_token() is None
    again = await deployment.finish(callback)
    was_used = "state" not in fields
    assert again.failure == (mcp_logins.INVALID_STATE if was_used else None)


async def test_a_failed_login_leaves_the_one_before_as_it_was(deployment: Deployment) -> None:
    token = await deployment.log_in()
    begun = await deployment.begin()

    refused = await deployment.finish(deployment.site.deny(begun.authorization_url))

    assert refused.failure == "OAuth error: access_denied - The user said <no>."
    assert await deployment.find_tokens(2) == {token}


async def test_a_login_can_be_forgotten(deployment: Deployment) -> None:
    await deployment.log_in()
    known = (ACTOR.organization_id, ACTOR.user_id, deployment.site.server.url)

    assert await mcp_logins.forget(deployment.servers[1], *known)

    assert await deployment.find_token() is None
    assert not await mcp_logins.forget(deployment.servers[1], *known)
