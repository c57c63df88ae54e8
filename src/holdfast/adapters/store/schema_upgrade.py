"""Upgrade of the database schema to the newest revision when the store is opened. The steps are in ``migrations``.

What is special to PostgreSQL is in ``postgres_upgrade``: its lock, and the job queue.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
    select,
)

from holdfast.adapters.store import tables
from holdfast.adapters.store.file_permissions import make_private_file
from holdfast.adapters.store.search_schema import create_search_tables
from holdfast.errors import Bug, StoreIsNewer, StoreUnavailable

# Every revision, oldest first. Alembic has this list too, but importing it at each start takes too long.
REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
HEAD: Final = REVISIONS[-1]
# The oldest revision whose servers can use a database at HEAD: CONTRIBUTING.md, "Upgrades without a stop".
OLDEST_COMPATIBLE: Final = "0003"

VERSION_TABLE: Final = "alembic_version"
# Where the database itself has that number: an older server cannot know it otherwise.
OLDEST_COMPATIBLE_KEY: Final = "oldest_compatible_revision"
_SCRIPTS: Final = Path(__file__).with_name("migrations")

# As Alembic creates it. Not in our own metadata, because it is Alembic's table.
_version: Final = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


class StoredRevision(Struct, frozen=True):
    """The revision of a database, and the oldest one whose servers can use it; None in databases before 0003."""

    number: str
    oldest_compatible: str | None = None


def upgrade_sqlite_file(path: Path, engine: Callable[[], Engine]) -> None:
    """Upgrade the file if it is not at the newest revision. A file that is not empty is backed up first."""
    stored = read_file_revision(path)
    if not needs_upgrade(stored, str(path)):
        return
    if stored is not None:
        _back_up(path, path.with_name(f"{path.name}.before-{HEAD}.bak"))
    upgrading = engine()
    try:
        with upgrading.connect() as connection:
            # The transaction starts here, so that Alembic does not commit.
            connection.begin()
            create_or_upgrade(connection, stored)
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                raise Bug(f"The upgrade to {HEAD} left rows with dangling references: {broken[:3]}")
            connection.commit()
    finally:
        upgrading.dispose()


def needs_upgrade(stored: StoredRevision | None, where: str) -> bool:
    """Whether the database is older than this version. StoreIsNewer if it is newer and this version cannot use it."""
    if stored is None or stored.number in REVISIONS:
        return stored is None or stored.number != HEAD
    if stored.oldest_compatible is None or stored.oldest_compatible > HEAD:
        raise StoreIsNewer(
            f"{where} was written by a newer Holdfast (revision {stored.number}; this one knows up to "
            f"{HEAD}). It was not touched. Start it with that version again."
        )
    return False


def create_or_upgrade(connection: Connection, stored: StoredRevision | None) -> None:
    """A new store gets the current tables directly; a test proves that they equal the sum of all steps."""
    if stored is not None:
        run_migrations(connection)
        return
    tables.metadata.create_all(connection, checkfirst=False)
    create_search_tables(connection)
    _version.create(connection)
    connection.execute(_version.insert(), {"version_num": HEAD})
    connection.execute(
        tables.deployment.insert(), {"key": OLDEST_COMPATIBLE_KEY, "value": OLDEST_COMPATIBLE}
    )


def run_migrations(connection: Connection, target: str | None = None) -> None:
    """Run the steps to the target; to the newest revision without one."""
    # Imported here because few starts need it, and Alembic takes 0.2 s and 10 MB.
    from alembic import command  # noqa: PLC0415 - slow to import, and only needed for an upgrade
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, target or HEAD)


def read_file_revision(path: Path) -> StoredRevision | None:
    """Return the file's revision; None if it is empty. Nothing is written: a store of a newer version must not change."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return None
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            found = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            names = {name for (name,) in found}
            if VERSION_TABLE not in names:
                return None
            number = file.execute("SELECT version_num FROM alembic_version").fetchone()
            oldest = None
            if tables.deployment.name in names:
                oldest = file.execute(
                    "SELECT value FROM deployment WHERE key = ?", (OLDEST_COMPATIBLE_KEY,)
                ).fetchone()
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path} cannot be read as a store: {error}.") from error
    return StoredRevision(*number, *(oldest or ())) if number else None


def read_revision(connection: Connection) -> StoredRevision | None:
    inspector = inspect(connection)
    if not inspector.has_table(VERSION_TABLE):
        return None
    number = connection.execute(select(_version.c.version_num)).scalar()
    if number is None:
        return None
    if not inspector.has_table(tables.deployment.name):
        return StoredRevision(number)
    return StoredRevision(number, read_fact(connection, OLDEST_COMPATIBLE_KEY))


def read_fact(connection: Connection, key: str) -> str | None:
    """Return what the table ``deployment`` has under this key."""
    rows = tables.deployment
    return connection.execute(select(rows.c.value).where(rows.c.key == key)).scalar()


def _back_up(path: Path, copy: Path) -> None:
    make_private_file(copy)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
