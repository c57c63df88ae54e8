"""Upgrade of a PostgreSQL database that several servers share: one does it, the others wait for it.

Locks belong to a transaction, never to a session: a pooler may give each transaction another connection.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from holdfast.adapters.store import procrastinate_schema, run_jobs, schema_upgrade
from holdfast.errors import HomeInUse

# Arbitrary constants; advisory locks are per database.
_UPGRADE_LOCK_ID: Final = 0x686F6C65
# Servers of revisions before ``_FIRST_SHARED`` hold this one as long as they run, and expect to be alone.
_SINGLE_SERVER_LOCK_ID: Final = 0x686F6C64
_FIRST_SHARED: Final = "0003"

# The database needs a moment to notice that the previous server was killed.
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.1


def upgrade_database(connection: Connection, where: str) -> None:
    """Upgrade the tables and the job queue. Backups of a database server are made by its operator."""
    stored = schema_upgrade.read_revision(connection)
    if schema_upgrade.needs_upgrade(stored, where):
        with _lock(connection):
            _upgrade_tables(connection, where)
    elif stored is not None and stored.number != schema_upgrade.HEAD:
        # A newer version looks after this database.
        return
    while procrastinate_schema.find_next_migration(connection) is not None:
        with _lock(connection):
            # Read again: another server may have applied it meanwhile.
            migration = procrastinate_schema.find_next_migration(connection)
            if migration is not None:
                procrastinate_schema.apply_migration(connection, migration)


def _upgrade_tables(connection: Connection, where: str) -> None:
    # Read again: another server may have upgraded them meanwhile.
    stored = schema_upgrade.read_revision(connection)
    if not schema_upgrade.needs_upgrade(stored, where):
        return
    has_queue = stored is not None and stored.number >= _FIRST_SHARED
    if not has_queue:
        _exclude_older_servers(connection, where)
    schema_upgrade.create_or_upgrade(connection, stored)
    if not has_queue:
        procrastinate_schema.create(connection)
        run_jobs.create(connection)


@contextmanager
def _lock(connection: Connection) -> Iterator[None]:
    """A transaction under the lock, without a time limit. It sees what was committed before it got the lock."""
    connection.rollback()
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK_ID})")
    yield
    connection.commit()


def _exclude_older_servers(connection: Connection, where: str) -> None:
    """Let no server of the versions that must be alone start until the end of the transaction."""
    for _ in range(_TRIES):
        query = f"SELECT pg_try_advisory_xact_lock({_SINGLE_SERVER_LOCK_ID})"
        if connection.exec_driver_sql(query).scalar():
            return
        time.sleep(_PAUSE_SECONDS)
    raise HomeInUse(
        f"A Holdfast server of an older version uses the database {where}. It cannot share it with others, and the "
        "database must be upgraded for this version: stop that server first."
    )
