"""The tables and functions of Procrastinate, in a PostgreSQL schema of their own. Only its SQL is used.

The package is not imported, because that takes long. It does not apply its migrations: this module does, each in a
transaction of its own, since a value that is added to an enum cannot be used before the commit. The caller has the lock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from holdfast import __version__
from holdfast.adapters.store import tables
from holdfast.adapters.store.schema_upgrade import read_fact
from holdfast.errors import CannotStart

SCHEMA: Final = "holdfast_queue"
# Procrastinate's index that allows one claimed job per lock.
JOB_LOCK_INDEX: Final = "procrastinate_jobs_lock_idx_v1"
# The name of the newest of Procrastinate's migrations that the database has.
MIGRATION_KEY: Final = "procrastinate_migration"

_CREATE_SCHEMA: Final = """
DO $$
BEGIN
    -- The operator may have made it for a user that may not: even IF NOT EXISTS asks for the privilege.
    IF to_regnamespace('holdfast_queue') IS NULL THEN
        CREATE SCHEMA holdfast_queue;
    END IF;
END;
$$
"""

# A function looks its tables up in the search path of its caller, unless it has one of its own.
_SET_SEARCH_PATHS: Final = """
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = 'holdfast_queue'::regnamespace AND prokind IN ('f', 'p')
    LOOP
        EXECUTE format('ALTER ROUTINE %s SET search_path = holdfast_queue, pg_temp', routine);
    END LOOP;
END;
$$
"""

_OTHER_VERSION_IS_ALIVE: Final = text("""
SELECT EXISTS (
    SELECT 1 FROM servers
    WHERE version <> :version
    AND (lease_ends_at IS NULL OR lease_ends_at > extract(epoch FROM clock_timestamp()) * 1000000)
)
""")


def create(connection: Connection) -> None:
    """Create the schema as the newest migration would leave it."""
    _execute_script(connection, _CREATE_SCHEMA)
    _execute_in_schema(connection, _sql_folder() / "schema.sql")
    _remember(connection, _migrations()[-1])


def find_next_migration(connection: Connection) -> Path | None:
    """Return the first migration that the database lacks; None if it has all, or if the first must wait.

    One with ``_pre_`` in its name can be applied while older servers run. Any other may take away what those use, so
    it waits for a later start.
    """
    latest = read_fact(connection, MIGRATION_KEY)
    missing = [path for path in _migrations() if latest is None or path.name > latest]
    if not missing:
        return None
    if "_pre_" not in missing[0].name and _serves_another_version(connection):
        return None
    return missing[0]


def apply_migration(connection: Connection, migration: Path) -> None:
    _execute_in_schema(connection, migration)
    _remember(connection, migration)


def _serves_another_version(connection: Connection) -> bool:
    """Whether a server of another version is alive, by the clock of the database."""
    return bool(connection.execute(_OTHER_VERSION_IS_ALIVE, {"version": __version__}).scalar())


def _remember(connection: Connection, migration: Path) -> None:
    fact = insert(tables.deployment).values(key=MIGRATION_KEY, value=migration.name)
    connection.execute(
        fact.on_conflict_do_update(index_elements=["key"], set_={"value": migration.name})
    )


def _execute_in_schema(connection: Connection, script: Path) -> None:
    with _search_path(connection):
        _execute_script(connection, script.read_text(encoding="utf-8"))
    _execute_script(connection, _SET_SEARCH_PATHS)


@contextmanager
def _search_path(connection: Connection) -> Iterator[None]:
    """Look up and create everything in the schema. Afterwards, unless the transaction has failed, as before."""
    before = connection.execute(text("SELECT current_setting('search_path')")).scalar()
    set_path = text("SELECT set_config('search_path', :path, true)")
    connection.execute(set_path, {"path": SCHEMA})
    yield
    connection.execute(set_path, {"path": before})


def _execute_script(connection: Connection, script: str) -> None:
    # Without parameters there may be several statements, and a percent sign is one.
    connection.exec_driver_sql(script, execution_options={"no_parameters": True})


def _migrations() -> list[Path]:
    """Return the files of all migrations, the oldest first: their names begin with the version."""
    return sorted((_sql_folder() / "migrations").glob("*.sql"))


def _sql_folder() -> Path:
    package = find_spec("procrastinate")
    if package is None or not package.submodule_search_locations:
        raise CannotStart("The package procrastinate, which PostgreSQL needs, is not installed.")
    return Path(package.submodule_search_locations[0], "sql")
