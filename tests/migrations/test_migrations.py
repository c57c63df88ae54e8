"""A store is upgraded when it is opened, and a failed upgrade changes nothing."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, make_url
from tests.support.next_version import HEAD, NEXT, NextRevision
from tests.support.values import Make

from holdfast.adapters.store import schema_upgrade, tables
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.adapters.store.schema_upgrade import StoredRevision
from holdfast.adapters.store.search_schema import INDEX_NAMES
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.errors import Bug, StoreIsNewer
from holdfast.ports.store import Transaction

ORG = DEFAULT_ORGANIZATION_ID

REBUILD_A_TABLE = """
    with op.batch_alter_table("agents") as agents:
        agents.alter_column("name", existing_type=sa.Text(), nullable=True)
"""
FAIL_HALFWAY = """
    op.create_table("half", sa.Column("id", sa.Text(), primary_key=True))
    raise LookupError("on purpose")
"""
LEAVE_ORPHANS = """
    op.execute("DELETE FROM agents")
"""


def test_the_list_of_revisions_is_the_chain_of_scripts() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema_upgrade._SCRIPTS))
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(script.revision for script in scripts)[::-1] == schema_upgrade.REVISIONS


def test_the_migrations_add_up_to_the_tables(store_url: str) -> None:
    with upgraded_database(store_url) as connection:
        opts = {"compare_type": True, "include_name": is_of_metadata}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, tables.metadata) == []


async def test_a_new_store_is_as_all_migrations_would_have_made_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    """Compares what a comparison of the tables misses: autoincrement, conditions of indexes, cascades, and the stored
    revisions."""
    step_by_step = tmp_path / "step_by_step.db"
    with upgraded_database(f"sqlite:///{step_by_step}"):
        pass
    assert read_schema(tmp_path / "holdfast.db") == read_schema(step_by_step)
    expected = StoredRevision(HEAD, schema_upgrade.OLDEST_COMPATIBLE)
    assert schema_upgrade.read_file_revision(tmp_path / "holdfast.db") == expected
    assert schema_upgrade.read_file_revision(step_by_step) == expected


def is_of_metadata(name: str | None, kind: str, _parents: object) -> bool:
    """Whether the comparison covers it. The indexes of words are not in the metadata: SQLite's are compared as text."""
    return kind != "table" or not str(name).startswith(("index_removals", *INDEX_NAMES.values()))


@contextmanager
def upgraded_database(url: str) -> Iterator[Connection]:
    """An empty database taken through every migration."""
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with engine.connect() as connection:
        schema_upgrade.run_migrations(connection)
        connection.commit()
        yield connection
    engine.dispose()


def read_schema(path: Path) -> dict[str, set[str]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        ).fetchall()
    return {name: split_definition(sql) for name, sql in rows}


def split_definition(sql: str) -> set[str]:
    """The parts of a definition. Their order does not matter: a column that was added later is behind the constraints.
    Nor do quotes: SQLite writes the name of a table with them once it was renamed, as a batch does."""
    sql = sql.replace('"', "")
    parts = [""]
    depth = 0
    for character in sql:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += character
    # The first has the opening parenthesis, the last may have the closing one.
    parts[-1] = parts[-1].rstrip().removesuffix(")") if depth == 0 else parts[-1]
    return {re.sub(r"\s+", " ", part).strip() for part in parts}


async def fill_store(url: str, cipher: Cipher, make: Make) -> str:
    """Create a store of this version with one agent in it; return the agent's id."""
    agent = make.agent()
    thread = make.thread(agent)

    def fill(tx: Transaction) -> None:
        tx.agents.add(agent)
        tx.threads.add(thread)
        tx.messages.append([make.message(thread)])

    store = await open_store(url, cipher=cipher)
    await store.write(fill)
    await store.close()
    return agent.id


async def test_an_upgrade_keeps_every_row(
    store_url: str, cipher: Cipher, make: Make, next_revision: NextRevision
) -> None:
    agent_id = await fill_store(store_url, cipher, make)
    next_revision(REBUILD_A_TABLE)
    store = await open_store(store_url, cipher=cipher)
    # On SQLite a table was rebuilt: rows that refer to it must still exist.
    assert len(await store.read(lambda tx: tx.messages.context(agent_id))) == 1
    await store.close()


async def test_a_copy_is_made_before_an_upgrade(
    tmp_path: Path, cipher: Cipher, make: Make, next_revision: NextRevision
) -> None:
    path = tmp_path / "holdfast.db"
    agent_id = await fill_store(f"sqlite:///{path}", cipher, make)
    assert list_backups(tmp_path) == []
    next_revision(REBUILD_A_TABLE)
    await (await SqliteStore.open(path, cipher=cipher)).close()
    assert list_backups(tmp_path) == [f"holdfast.db.before-{NEXT}.bak"]
    with closing(sqlite3.connect(tmp_path / f"holdfast.db.before-{NEXT}.bak")) as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)
        assert copy.execute("SELECT id FROM agents").fetchall() == [(agent_id,)]


def list_backups(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.bak"))


async def test_a_store_that_is_up_to_date_is_not_copied(tmp_path: Path, cipher: Cipher) -> None:
    for _ in range(2):
        await (await SqliteStore.open(tmp_path / "holdfast.db", cipher=cipher)).close()
    assert list_backups(tmp_path) == []


async def test_an_upgrade_that_fails_changes_nothing(
    store_url: str,
    cipher: Cipher,
    make: Make,
    next_revision: NextRevision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent_id = await fill_store(store_url, cipher, make)
    next_revision(FAIL_HALFWAY)
    with pytest.raises(LookupError, match="on purpose"):
        await open_store(store_url, cipher=cipher)
    monkeypatch.undo()
    store = await open_store(store_url, cipher=cipher)
    assert (await store.read(lambda tx: tx.agents.get(ORG, agent_id))).id == agent_id
    await store.close()


async def test_an_upgrade_that_leaves_dangling_references_is_undone(
    tmp_path: Path, cipher: Cipher, make: Make, next_revision: NextRevision
) -> None:
    path = tmp_path / "holdfast.db"
    agent_id = await fill_store(f"sqlite:///{path}", cipher, make)
    next_revision(LEAVE_ORPHANS)
    with pytest.raises(Bug, match="dangling references"):
        await SqliteStore.open(path, cipher=cipher)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT id FROM agents").fetchall() == [(agent_id,)]


async def test_a_newer_sqlite_store_is_left_as_it_is(
    tmp_path: Path, cipher: Cipher, make: Make
) -> None:
    path = tmp_path / "holdfast.db"
    await fill_store(f"sqlite:///{path}", cipher, make)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE alembic_version SET version_num = '9999'")
        file.execute("UPDATE deployment SET value = '9999'")
        file.commit()
    before = path.read_bytes()
    with pytest.raises(StoreIsNewer, match="revision 9999"):
        await SqliteStore.open(path, cipher=cipher)
    assert path.read_bytes() == before
    assert list_backups(tmp_path) == []


@pytest.mark.slow
async def test_a_newer_postgresql_store_is_left_as_it_is(
    postgres_url: str, cipher: Cipher, make: Make
) -> None:
    await fill_store(postgres_url, cipher, make)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute(
            "UPDATE deployment SET value = '9999' WHERE key = 'oldest_compatible_revision'"
        )
    with pytest.raises(StoreIsNewer, match="revision 9999"):
        await open_store(postgres_url, cipher=cipher)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [
            ("9999",)
        ]
        assert connection.execute("SELECT count(*) FROM agents").fetchone() == (1,)
