"""A server of the version before goes on working in a database that a newer one has upgraded: CONTRIBUTING.md, "Upgrades
without a stop"."""

from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import ColumnCollectionConstraint
from tests.support.next_version import HEAD, NEXT, NextRevision
from tests.support.old_database import connect, migrate
from tests.support.values import Make

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store, read_revision_at
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.core.ids import DEFAULT_ORGANIZATION_ID
from holdfast.errors import StoreIsNewer

ORG = DEFAULT_ORGANIZATION_ID
FIRST_OF_THE_RULE = "0003"

EXPAND = """
    op.create_table("moods", sa.Column("id", sa.Text(), primary_key=True))
    op.add_column("agents", sa.Column("mood", sa.Text()))
    op.add_column("agents", sa.Column("age", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_agents_mood", "agents", ["mood"])
"""
ADD_WITHOUT_DEFAULT = """
    op.add_column("callbacks", sa.Column("mood", sa.Text(), nullable=False))
"""
DROP_A_COLUMN = """
    op.drop_column("agents", "hidden")
"""
RENAME_A_COLUMN = """
    op.alter_column("agents", "hidden", new_column_name="is_hidden")
"""
DROP_A_TABLE = """
    op.drop_table("provider_traces")
"""
CHANGE_A_TYPE = """
    op.drop_column("runs", "num_steps")
    op.add_column("runs", sa.Column("num_steps", sa.Boolean()))
"""
CONTRACT = f"""
    op.execute("UPDATE deployment SET value = '{NEXT}' WHERE key = 'oldest_compatible_revision'")
"""

# Values for the two rows that a column of a type can have: as added, and after a change.
VALUES: dict[type, tuple[Any, Any]] = {
    Text: ("a", "b"),
    Integer: (1, 2),
    BigInteger: (1, 2),
    Boolean: (True, False),
    LargeBinary: (b"a", b"b"),
    TSVECTOR: ("'a'", "'b'"),
}
# Columns that must be empty because others are not.
EMPTY = {"passages": ("folder_id", "file_id")}


def use_old_tables_after_the_upgrade(url: str, old: str) -> None:
    """Upgrade a database from the old revision to the newest one. Then do with each of the old tables, with all of the old
    columns and no other, what a server of that time does: add a row, change it, read it and delete it."""
    migrate(url, old)
    with connect(url) as connection:
        tables = MetaData()
        tables.reflect(connection)
        schema_upgrade.run_migrations(connection)
        connection.commit()
        # Alembic's table is none of ours. Another one has rows already.
        used = [
            table for table in tables.sorted_tables if table.name != schema_upgrade.VERSION_TABLE
        ]
        connection.execute(delete(tables.tables["deployment"]))
        for table in used:
            # One row each, with the same values everywhere: so all references are met.
            connection.execute(table.insert().values(make_row(table, 0)))
        for table in used:
            expected = make_row(table, 0) | make_change(table)
            connection.execute(update(table).values(expected))
            row = connection.execute(select(table)).mappings().one()
            assert {name: row[name] for name in expected} == expected, table.name
        for table in reversed(used):
            assert connection.execute(delete(table)).rowcount == 1, table.name


def make_row(table: Table, number: int) -> dict[str, Any]:
    return {
        column.name: next(v for kind, v in VALUES.items() if isinstance(column.type, kind))[number]
        for column in table.columns
        if column.identity is None
        if column.name not in EMPTY.get(table.name, ())
    }


def make_change(table: Table) -> dict[str, Any]:
    """Other values for the columns that neither refer to others nor may be referred to."""
    keys = {
        column.name
        for constraint in table.constraints
        if isinstance(constraint, ColumnCollectionConstraint)
        for column in constraint.columns
    }
    return {name: value for name, value in make_row(table, 1).items() if name not in keys}


@pytest.mark.slow
@pytest.mark.parametrize(
    "old", [r for r in schema_upgrade.REVISIONS if r >= schema_upgrade.OLDEST_COMPATIBLE]
)
def test_the_tables_of_each_compatible_revision_can_still_be_used(
    postgres_url: str, old: str
) -> None:
    use_old_tables_after_the_upgrade(postgres_url, old)


def test_the_version_before_is_compatible() -> None:
    """What the newest revision itself needs may not be missing in the one before it."""
    oldest = schema_upgrade.OLDEST_COMPATIBLE
    assert oldest == FIRST_OF_THE_RULE or oldest <= schema_upgrade.REVISIONS[-2]


@pytest.mark.slow
def test_a_revision_that_only_expands_is_compatible(
    postgres_url: str, next_revision: NextRevision
) -> None:
    next_revision(EXPAND)
    use_old_tables_after_the_upgrade(postgres_url, HEAD)
    assert read_stored_number(postgres_url) == NEXT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contraction", "problem"),
    [
        (ADD_WITHOUT_DEFAULT, 'null value in column "mood"'),
        (DROP_A_COLUMN, 'column "hidden" of relation "agents" does not exist'),
        (RENAME_A_COLUMN, 'column "hidden" of relation "agents" does not exist'),
        (DROP_A_TABLE, 'relation "provider_traces" does not exist'),
        (CHANGE_A_TYPE, 'column "num_steps" is of type boolean'),
    ],
    ids=["column without default", "dropped", "renamed", "dropped table", "other type"],
)
def test_a_revision_that_contracts_is_noticed(
    postgres_url: str, next_revision: NextRevision, contraction: str, problem: str
) -> None:
    next_revision(contraction)
    with pytest.raises(DBAPIError, match=problem):
        use_old_tables_after_the_upgrade(postgres_url, HEAD)


async def upgrade(url: str, cipher: Cipher) -> None:
    await (await open_store(url, cipher=cipher)).close()


async def use_store(store: SqlStore, make: Make) -> None:
    agent = make.agent()
    await store.write(lambda tx: tx.agents.add(agent))
    assert await store.read(lambda tx: tx.agents.get(ORG, agent.id)) == agent


@pytest.mark.slow
async def test_a_server_goes_on_while_a_newer_one_upgrades_the_database(
    blank_postgres_url: str, cipher: Cipher, make: Make, next_revision: NextRevision
) -> None:
    older = await open_store(blank_postgres_url, cipher=cipher)
    await use_store(older, make)
    next_revision(EXPAND)
    newer = await open_store(blank_postgres_url, cipher=cipher)
    assert read_stored_number(blank_postgres_url) == NEXT
    await use_store(older, make)
    await use_store(newer, make)
    await older.close()
    await newer.close()


async def test_a_server_starts_in_a_newer_database_that_it_can_use(
    store_url: str,
    cipher: Cipher,
    make: Make,
    next_revision: NextRevision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await upgrade(store_url, cipher)
    next_revision(EXPAND)
    await upgrade(store_url, cipher)
    monkeypatch.undo()
    older = await open_store(store_url, cipher=cipher)
    await use_store(older, make)
    await older.close()
    assert read_stored_number(store_url) == NEXT


async def test_a_server_does_not_start_in_a_newer_database_that_it_cannot_use(
    store_url: str,
    cipher: Cipher,
    next_revision: NextRevision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await upgrade(store_url, cipher)
    next_revision(CONTRACT)
    await upgrade(store_url, cipher)
    monkeypatch.undo()
    with pytest.raises(StoreIsNewer, match=f"revision {NEXT}; this one knows up to {HEAD}"):
        await open_store(store_url, cipher=cipher)
    assert read_stored_number(store_url) == NEXT


def read_stored_number(url: str) -> str | None:
    _, stored = read_revision_at(url)
    return None if stored is None else stored.number
