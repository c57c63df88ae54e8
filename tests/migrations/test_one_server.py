"""Only one server can use a store at a time, and a dead server does not block the next one."""

import asyncio
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.core.blocks import BlockQuery
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.core.paging import Page
from holdfast.errors import HomeInUse

PATIENCE_SECONDS = 60

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


async def test_a_second_opener_is_refused(store_url: str, cipher: Cipher) -> None:
    store = await open_store(store_url, cipher=cipher)
    with pytest.raises(HomeInUse, match="Another Holdfast server"):
        await open_store(store_url, cipher=cipher)
    await store.read(lambda tx: tx.runs.list_live())
    await store.close()
    await (await open_store(store_url, cipher=cipher)).close()


async def test_the_refusal_names_the_store_and_its_server(tmp_path: Path, cipher: Cipher) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    store = await open_store(url, cipher=cipher)
    with pytest.raises(HomeInUse, match=rf"process \d+\) uses {tmp_path}/holdfast\.db"):
        await open_store(url, cipher=cipher)
    await store.close()


@pytest.mark.slow
async def test_a_killed_server_keeps_its_commits_and_frees_its_lock(
    store_url: str, cipher: Cipher
) -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, store_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await server.stdout.readline() == b"ready\n"
        with pytest.raises(HomeInUse):
            await open_store(store_url, cipher=cipher)
    finally:
        server.kill()
        await server.wait()
    store = await open_store(store_url, cipher=cipher)
    query = BlockQuery(page=Page(limit=9))
    found = await store.read(lambda tx: tx.blocks.list(DEFAULT_ORGANIZATION_ID, query))
    assert len(found) == 1
    await store.close()


@pytest.mark.slow
async def test_a_server_that_lost_its_connections_takes_its_lock_again(
    postgres_url: str, cipher: Cipher
) -> None:
    store = await open_store(postgres_url, cipher=cipher)
    drop_connections(postgres_url)
    assert await store.write(lambda tx: tx.runs.list_live()) == []
    with pytest.raises(HomeInUse):
        await open_store(postgres_url, cipher=cipher)
    await store.close()


@pytest.mark.slow
async def test_a_server_whose_lock_another_took_stops_writing(
    postgres_url: str, cipher: Cipher
) -> None:
    store = await open_store(postgres_url, cipher=cipher)
    drop_connections(postgres_url)
    usurper = await open_store(postgres_url, cipher=cipher)
    with pytest.raises(HomeInUse):
        await store.write(lambda tx: tx.runs.list_live())
    await usurper.close()
    await store.close()


def drop_connections(url: str) -> None:
    """Close all connections to the database, as its restart would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
