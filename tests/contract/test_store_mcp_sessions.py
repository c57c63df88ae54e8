"""OAuth sessions with MCP servers in the store: tokens are encrypted, and one server refreshes them at a time."""

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from tests.support.values import ident, moment

from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.mcp_servers import McpServer, Transport
from holdfast.core.mcp_sessions import McpSession, SessionSecrets, SessionStatus
from holdfast.errors import AlreadyExists, NotFound
from holdfast.ports.store import Store, Transaction

ORG = DEFAULT_ORGANIZATION_ID
USER = "user-1"
URL = "https://mcp.example/mcp"


def session(number: int = 1, **fields: Any) -> McpSession:
    values: dict[str, Any] = {
        "id": f"mcp-oauth-{number:08x}",
        "organization_id": ORG,
        "user_id": USER,
        "server_url": URL,
        "status": SessionStatus.AUTHORIZED,
        "secrets": SessionSecrets(
            code_verifier="verifier",
            client_secret="client-secret",
            access_token="access-token",
            refresh_token="refresh-token",
        ),
        "created_at": moment(number),
        "updated_at": moment(number),
    }
    return McpSession(**values | fields)


async def add(store: Store, *sessions: McpSession) -> None:
    def work(tx: Transaction) -> None:
        for item in sessions:
            tx.mcp_sessions.add(item)

    await store.write(work)


async def get(store: Store, session_id: str) -> McpSession | None:
    return await store.read(lambda tx: tx.mcp_sessions.get(session_id))


async def test_a_session_comes_back_with_all_its_fields(any_store: Store) -> None:
    stored = session(
        status=SessionStatus.PENDING,
        state="state-1",
        server_name="weather",
        authorization_url="https://login.example/authorize",
        token_endpoint="https://login.example/token",
        client_auth_method="client_secret_post",
        issuer="https://login.example",
        resource=URL,
        client_id="client-1",
        redirect_uri="http://localhost/callback",
        scope="read",
        expires_at=moment(99),
        failure="none",
    )
    await add(any_store, stored)

    assert await get(any_store, stored.id) == stored
    assert await get(any_store, "mcp-oauth-2") is None
    changed = replace(stored, status=SessionStatus.AUTHORIZED, state=None, updated_at=moment(5))
    await any_store.write(lambda tx: tx.mcp_sessions.save(changed))
    assert await get(any_store, stored.id) == changed
    with pytest.raises(NotFound):
        await any_store.write(lambda tx: tx.mcp_sessions.save(session(2)))


async def test_a_pending_session_is_taken_once_by_its_state(any_store: Store) -> None:
    pending = session(1, status=SessionStatus.PENDING, state="state-1")
    await add(any_store, pending, session(2, state="state-2"))

    async def take(state: str) -> McpSession | None:
        return await any_store.write(lambda tx: tx.mcp_sessions.take_by_state(state))

    async def has(state: str) -> bool:
        return await any_store.read(lambda tx: tx.mcp_sessions.has_state(state))

    with pytest.raises(AlreadyExists):
        await add(any_store, session(3, state="state-1"))
    assert [await has(f"state-{number}") for number in (1, 2, 3)] == [True, False, False]
    assert await take("state-2") is None
    assert await take("state-3") is None
    taken = await asyncio.gather(*(take("state-1") for _ in range(8)))
    assert [item for item in taken if item is not None] == [replace(pending, state=None)]
    assert not await has("state-1")


async def test_the_newest_authorized_session_of_the_user_and_the_url_is_found(
    any_store: Store,
) -> None:
    await add(
        any_store,
        session(1, updated_at=moment(9)),
        session(2),
        session(3, status=SessionStatus.PENDING, updated_at=moment(20)),
        session(4, status=SessionStatus.ERROR, updated_at=moment(20)),
        session(5, user_id="user-2", updated_at=moment(20)),
        session(6, server_url="https://other.example", updated_at=moment(20)),
        session(7, organization_id="org-2", updated_at=moment(20)),
    )

    async def find(*key: str) -> str | None:
        found = await any_store.read(lambda tx: tx.mcp_sessions.find_authorized(*key))
        return None if found is None else found.id

    assert await find(ORG, USER, URL) == session(1).id
    assert await find(ORG, "user-2", URL) == session(5).id
    assert await find("org-2", USER, URL) == session(7).id
    assert await find(ORG, "user-3", URL) is None


async def test_without_an_authorized_session_the_newest_one_says_how_the_login_stands(
    any_store: Store,
) -> None:
    await add(
        any_store,
        session(1, updated_at=moment(9)),
        session(2, status=SessionStatus.ENDED, updated_at=moment(20)),
        session(3, status=SessionStatus.PENDING, user_id="user-2"),
        session(4, status=SessionStatus.ENDED, user_id="user-2", updated_at=moment(20)),
    )

    async def find(user_id: str) -> str | None:
        found = await any_store.read(lambda tx: tx.mcp_sessions.find_latest(ORG, user_id, URL))
        return None if found is None else found.id

    assert await find(USER) == session(1).id
    assert await find("user-2") == session(4).id
    assert await find("user-3") is None


async def test_a_login_replaces_those_before_it(any_store: Store) -> None:
    others = [
        session(2),
        session(3, status=SessionStatus.ENDED),
        session(4, status=SessionStatus.PENDING),
        session(5, user_id="user-2"),
        session(6, server_url="https://other.example"),
        session(7, organization_id="org-2"),
    ]
    await add(any_store, session(1), *others)

    async def list_kept() -> list[int]:
        return [number for number in range(1, 8) if await get(any_store, session(number).id)]

    await any_store.write(lambda tx: tx.mcp_sessions.delete_others(session(1)))
    assert await list_kept() == [1, 4, 5, 6, 7]

    async def delete_all() -> bool:
        return await any_store.write(lambda tx: tx.mcp_sessions.delete_all(ORG, USER, URL))

    assert await delete_all()
    assert await list_kept() == [5, 6, 7]
    assert not await delete_all()


async def test_one_server_refreshes_the_tokens_at_a_time(any_store: Store) -> None:
    stored = session()
    await add(any_store, stored)

    async def begin(now: int, ends: int) -> bool:
        return await any_store.write(
            lambda tx: tx.mcp_sessions.begin_refresh(stored.id, moment(now), moment(ends))
        )

    assert await begin(10, 20)
    assert not await begin(11, 21)
    # Saving does not give the right back.
    await any_store.write(lambda tx: tx.mcp_sessions.save(replace(stored, scope="new")))
    assert not await begin(12, 22)
    # Who had it has died.
    assert await begin(20, 30)

    async def end(ends: int, token: str) -> tuple[bool, McpSession]:
        """End the refresh of the server that had the right until then."""
        renewed = replace(
            stored,
            secrets=SessionSecrets(access_token=token),
            updated_at=moment(25),
            refresh_ends_at=moment(ends),
        )
        has_ended = await any_store.write(lambda tx: tx.mcp_sessions.end_refresh(renewed))
        return has_ended, replace(renewed, refresh_ends_at=None)

    # The one that was taken for dead comes too late.
    assert not (await end(20, "late"))[0]
    has_ended, renewed = await end(30, "new")
    assert has_ended
    assert await get(any_store, stored.id) == renewed
    assert await begin(26, 36)


async def test_sessions_that_nobody_completed_are_deleted(any_store: Store) -> None:
    await add(
        any_store,
        session(1, status=SessionStatus.PENDING, state="a"),
        session(2),
        session(5, status=SessionStatus.PENDING, state="b"),
    )

    await any_store.write(lambda tx: tx.mcp_sessions.delete_pending_before(moment(5)))

    kept = [await get(any_store, session(number).id) for number in (1, 2, 5)]
    assert [item is not None for item in kept] == [False, True, True]


async def test_sessions_without_a_server_are_deleted_with_the_last_one_of_their_url(
    any_store: Store,
) -> None:
    server = McpServer(
        id=ident("mcp_server", 1),
        organization_id=ORG,
        name="weather",
        transport=Transport.STREAMABLE_HTTP,
        created_at=moment(1),
        updated_at=moment(1),
    )
    await any_store.write(lambda tx: tx.mcp_servers.add(server))
    await add(
        any_store,
        session(1),
        session(2, server_id=server.id),
        session(3, user_id="user-2"),
        session(4, server_url="https://other.example"),
    )

    await any_store.write(lambda tx: tx.mcp_sessions.delete_unlinked(ORG, USER, URL))

    kept = [await get(any_store, session(number).id) for number in (1, 2, 3, 4)]
    assert [item is not None for item in kept] == [False, True, True, True]


async def test_neither_tokens_nor_addresses_are_stored_in_clear(store: SqliteStore) -> None:
    secret = "https://mcp.example/s/swordfish/mcp"
    stored = session(
        server_url=secret,
        resource=secret,
        issuer="https://mcp.example/s/swordfish",
        token_endpoint="https://mcp.example/s/swordfish/token",
        authorization_url="https://login.example/authorize?resource=swordfish",
    )
    await add(store, stored)

    def read_row(tx: Transaction) -> str:
        connection = tx.mcp_sessions._connection  # type: ignore[attr-defined]  # what a thief would see
        return str(connection.execute(text("SELECT * FROM mcp_sessions")).all())

    row = await store.read(read_row)
    assert sha256(secret.encode()).hexdigest() in row
    for word in ("verifier", "client-secret", "access-token", "refresh-token", "swordfish"):
        assert word not in row
    # It is found all the same.
    found = await store.read(lambda tx: tx.mcp_sessions.find_latest(ORG, USER, secret))
    assert found == stored
