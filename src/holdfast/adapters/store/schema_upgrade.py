"""Upgrade of the database schema to the newest revision when the store is opened. The steps are in ``migrations``."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.file_permissions import make_private_file
from holdfast.errors import Bug, StoreIsNewer, StoreUnavailable

# Every revision, oldest first. Alembic has this list too, but importing it at each start takes too long.
REVISIONS: Final = ("0001", "0002")
HEAD: Final = REVISIONS[-1]

VERSION_TABLE: Final = "alembic_version"
_SCRIPTS: Final = Path(__file__).with_name("migrations")

# As Alembic creates it. Not in our own metadata, because it is Alembic's table.
_version: Final = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def upgrade_sqlite_file(path: Path, engine: Callable[[], Engine]) -> None:
    """Upgrade the file if it is not at the newest revision. A file that is not empty is backed up first."""
    revision = read_file_revision(path)
    if not needs_upgrade(revision, str(path)):
        return
    if revision is not None:
        _back_up(path, path.with_name(f"{path.name}.before-{HEAD}.bak"))
    upgrading = engine()
    try:
        with upgrading.connect() as connection:
            # The transaction starts here, so that Alembic does not commit.
            connection.begin()
            _create_or_upgrade(connection, revision)
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                raise Bug(f"The upgrade to {HEAD} left rows with dangling references: {broken[:3]}")
            connection.commit()
    finally:
        upgrading.dispose()


def upgrade_database(connection: Connection, where: str) -> None:
    """Upgrade the database if it is not at the newest revision. Backups of a database server are made by its operator."""
    revision = read_revision(connection)
    if needs_upgrade(revision, where):
        _create_or_upgrade(connection, revision)
        connection.commit()


def needs_upgrade(revision: str | None, where: str) -> bool:
    if revision is not None and revision not in REVISIONS:
        raise StoreIsNewer(
            f"{where} was written by a newer Holdfast (revision {revision}; this one knows up to "
            f"{HEAD}). It was not touched. Start it with that version again."
        )
    return revision != HEAD


def _create_or_upgrade(connection: Connection, revision: str | None) -> None:
    """A new store gets the current tables directly; a test proves that they equal the sum of all steps."""
    if revision is not None:
        run_migrations(connection)
        return
    tables.metadata.create_all(connection, checkfirst=False)
    _version.create(connection)
    connection.execute(_version.insert(), {"version_num": HEAD})


def run_migrations(connection: Connection) -> None:
    # Imported here because few starts need it, and Alembic takes 0.2 s and 10 MB.
    from alembic import command  # noqa: PLC0415 - slow to import, and only needed for an upgrade
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def read_file_revision(path: Path) -> str | None:
    """Return the file's revision; None if it is empty. Nothing is written: a store of a newer version must not change."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return None
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            known = file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_TABLE,))
            if known.fetchone() is None:
                return None
            found = file.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path} cannot be read as a store: {error}.") from error
    return None if found is None else str(found[0])


def read_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _back_up(path: Path, copy: Path) -> None:
    make_private_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
