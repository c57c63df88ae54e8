"""Several servers can share a PostgreSQL database, if they are new enough and have the same key. A SQLite file is for one."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import make_url
from tests.support.old_database import migrate, read_revision
from tests.support.values import Make
from tests.support.waiting import eventually

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher, FernetCipher
from holdfast.adapters.store.factory import open_store
from holdfast.core.blocks import BlockQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Page
from holdfast.errors import HomeInUse, SecretKeyDiffers

ORG = DEFAULT_ORGANIZATION_ID
PATIENCE_SECONDS = 60
# The lock that servers of revision 0002 hold as long as they run.
OLD_LOCK_ID = 0x686F6C64
UPGRADE_LOCK_ID = 0x686F6C65

# Opens the store, writes to it, prints a line and keeps running.
SERVER = """
import asyncio, sys
from holdfast.adapters.store.cipher import FernetCipher
from holdfast.adapters.store.factory import open_store
from tests.support.values import Make

async def main():
    store = await open_store(sys.argv[1], cipher=FernetCipher("a key for tests"))
    await store.write(lambda tx: tx.blocks.add(Make().block()))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_second_server_on_a_sqlite_file_is_refused(tmp_path: Path, cipher: Cipher) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    store = await open_store(url, cipher=cipher)
    with pytest.raises(HomeInUse, match=rf"process \d+\) uses {tmp_path}/holdfast\.db"):
        await open_store(url, cipher=cipher)
    await store.read(lambda tx: tx.runs.list_live())
    await store.close()
    await (await open_store(url, cipher=cipher)).close()


async def test_the_refusal_names_postgresql_as_the_way_to_several_servers(
    tmp_path: Path, cipher: Cipher
) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    store = await open_store(url, cipher=cipher)
    with pytest.raises(HomeInUse, match="Several servers can share a PostgreSQL database"):
        await open_store(url, cipher=cipher)
    await store.close()


@pytest.mark.slow
async def test_a_killed_server_keeps_its_commits_and_frees_its_lock(
    tmp_path: Path, cipher: Cipher
) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await server.stdout.readline() == b"ready\n"
        with pytest.raises(HomeInUse):
            await open_store(url, cipher=cipher)
    finally:
        server.kill()
        await server.wait()
    assert await count_blocks(url, cipher) == 1


async def count_blocks(url: str, cipher: Cipher) -> int:
    store = await open_store(url, cipher=cipher)
    query = BlockQuery(page=Page(limit=9))
    found = await store.read(lambda tx: tx.blocks.list(ORG, query))
    await store.close()
    return len(found)


@pytest.mark.slow
async def test_servers_on_one_postgresql_see_what_the_others_write(
    blank_postgres_url: str, cipher: Cipher, make: Make
) -> None:
    first = await open_store(blank_postgres_url, cipher=cipher)
    second = await open_store(blank_postgres_url, cipher=cipher)
    await first.write(lambda tx: tx.blocks.add(make.block()))
    query = BlockQuery(page=Page(limit=9))
    assert len(await second.read(lambda tx: tx.blocks.list(ORG, query))) == 1
    await first.close()
    await second.close()


@pytest.mark.slow
async def test_an_open_store_holds_no_lock(blank_postgres_url: str, cipher: Cipher) -> None:
    """A transaction pooler would leave a lock of the session to a stranger."""
    store = await open_store(blank_postgres_url, cipher=cipher)
    await store.write(lambda tx: tx.runs.list_live())
    with psycopg.connect(blank_postgres_url) as connection:
        held = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert held.fetchone() == (0,)
    await store.close()


@pytest.mark.slow
async def test_servers_that_start_at_once_on_an_empty_database_all_start(
    postgres_url: str, cipher: Cipher
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        stores = await asyncio.gather(*(open_store(postgres_url, cipher=cipher) for _ in range(4)))
    for store in stores:
        assert await store.read(lambda tx: tx.runs.list_live()) == []
        await store.close()


@pytest.mark.slow
async def test_servers_that_start_at_once_on_an_older_database_all_start(
    postgres_url: str, cipher: Cipher
) -> None:
    migrate(postgres_url, "0002")
    async with asyncio.timeout(PATIENCE_SECONDS):
        stores = await asyncio.gather(*(open_store(postgres_url, cipher=cipher) for _ in range(4)))
    for store in stores:
        await store.close()
    assert read_revision(postgres_url) == schema_upgrade.HEAD


@pytest.mark.slow
async def test_the_statement_timeout_of_the_user_does_not_end_an_upgrade(
    postgres_url: str, cipher: Cipher
) -> None:
    """Behind a pooler operators set one for the user, because the server does not."""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        name = Identifier(str(make_url(postgres_url).database))
        other.execute(SQL("ALTER DATABASE {} SET statement_timeout = '1s'").format(name))
        other.execute("SELECT pg_advisory_lock(%s)", [UPGRADE_LOCK_ID])
        opening = asyncio.create_task(open_store(postgres_url, cipher=cipher))
        await eventually(lambda: opening.done() or has_waited(other))
    await (await asyncio.wait_for(opening, PATIENCE_SECONDS)).close()


def has_waited(connection: psycopg.Connection[Any]) -> bool:
    """Whether somebody waits for the lock for longer than a statement may take."""
    waiting = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database() "
        "AND clock_timestamp() - query_start > interval '1.5s'"
    ).fetchone()
    return waiting == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("revision", [None, "0002"], ids=["empty", "older"])
async def test_a_database_that_an_older_server_uses_is_not_upgraded(
    postgres_url: str, cipher: Cipher, revision: str | None
) -> None:
    if revision is not None:
        migrate(postgres_url, revision)
    with (
        older_server(postgres_url),
        pytest.raises(HomeInUse, match=r"older version uses the database.*stop that server first"),
    ):
        await open_store(postgres_url, cipher=cipher)
    assert read_revision(postgres_url) == revision
    await (await open_store(postgres_url, cipher=cipher)).close()
    assert read_revision(postgres_url) == schema_upgrade.HEAD


@contextmanager
def older_server(url: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [OLD_LOCK_ID])
        yield


@pytest.mark.slow
async def test_a_server_with_another_key_does_not_start(blank_postgres_url: str) -> None:
    store = await open_store(blank_postgres_url, cipher=FernetCipher("the key"))
    with pytest.raises(SecretKeyDiffers, match=r"need the same HOLDFAST_SECRET_KEY.*secret\.key"):
        await open_store(blank_postgres_url, cipher=FernetCipher("another key"))
    await store.close()
    await (await open_store(blank_postgres_url, cipher=FernetCipher("the key"))).close()


@pytest.mark.slow
async def test_the_password_of_the_database_is_not_in_the_refusal(blank_postgres_url: str) -> None:
    url = make_url(blank_postgres_url).set(password="the-password")
    text = url.render_as_string(hide_password=False)
    await (await open_store(text, cipher=FernetCipher("the key"))).close()
    with pytest.raises(SecretKeyDiffers) as refusal:
        await open_store(text, cipher=FernetCipher("another key"))
    assert "the-password" not in str(refusal.value)


@pytest.mark.slow
async def test_of_several_keys_that_start_at_once_one_is_accepted(blank_postgres_url: str) -> None:
    opened = await asyncio.gather(
        *(open_store(blank_postgres_url, cipher=FernetCipher(f"key {n}")) for n in range(4)),
        return_exceptions=True,
    )
    refused = [item for item in opened if isinstance(item, SecretKeyDiffers)]
    stores = [item for item in opened if not isinstance(item, BaseException)]
    assert (len(refused), len(stores)) == (3, 1)
    await stores[0].close()


# What a database of revision 0002 has of an agent with a secret, and of a provider.
AGENT_SECRET = """
INSERT INTO agents (id, organization_id, name, created_at, updated_at, body)
VALUES ('agent-1', 'org-1', 'a', 1, 1, '{{}}');
INSERT INTO agent_secrets (id, agent_id, key, ordinal, encrypted_value)
VALUES ('secret-1', 'agent-1', 'KEY', 0, {token});
"""
PROVIDER = """
INSERT INTO providers (id, organization_id, name, provider_type, created_at, encrypted_keys, body)
VALUES ('provider-1', 'org-1', 'mine', 'openai', 1, {token}, '{{}}');
"""


@pytest.mark.slow
@pytest.mark.parametrize("rows", [AGENT_SECRET, PROVIDER], ids=["agent secret", "provider"])
async def test_a_key_that_cannot_read_the_secrets_of_an_older_database_is_not_recorded(
    postgres_url: str, rows: LiteralString
) -> None:
    migrate(postgres_url, "0002")
    with psycopg.connect(postgres_url) as connection:
        token = FernetCipher("the key").encrypt("a secret")
        connection.execute(SQL(rows).format(token=token))
    with pytest.raises(SecretKeyDiffers):
        await open_store(postgres_url, cipher=FernetCipher("another key"))
    await (await open_store(postgres_url, cipher=FernetCipher("the key"))).close()
