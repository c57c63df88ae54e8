"""Opening the store that a URL names."""

from collections.abc import Sequence
from pathlib import Path

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.file_permissions import (
    make_home,
    make_private_folder,
    restrict_to_owner,
)
from holdfast.adapters.store.pgvector import PgvectorState
from holdfast.adapters.store.schema_upgrade import StoredRevision
from holdfast.adapters.store.sql_store import DEFAULT_VECTOR_OPTIONS, SqlStore, VectorOptions
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.store.time_limit import WRITE_SECONDS
from holdfast.core.servers import Server
from holdfast.errors import SettingInvalid

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")


def sqlite_path(url: str) -> Path | None:
    """Return the file that the URL names; None if it names another kind of database."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def read_revision_at(url: str) -> tuple[str, StoredRevision | None]:
    """Return the address without its password, and the schema revision there; None if the database is empty."""
    if (path := sqlite_path(url)) is not None:
        return str(path), schema_upgrade.read_file_revision(path)
    from holdfast.adapters.store.postgres import read_revision  # noqa: PLC0415 - see open_store

    return read_revision(url)


def read_alive_servers_at(url: str) -> Sequence[Server] | None:
    """Return the servers that are alive; None for SQLite, which has one and does not list it."""
    if sqlite_path(url) is not None:
        return None
    from holdfast.adapters.store.postgres import read_alive_servers  # noqa: PLC0415 - see open_store

    return read_alive_servers(url)


def read_pgvector_state_at(url: str) -> PgvectorState | None:
    """Find out whether the extension of vectors is used; None for SQLite, which needs none."""
    if sqlite_path(url) is not None:
        return None
    from holdfast.adapters.store.postgres import read_pgvector_state  # noqa: PLC0415 - see open_store

    return read_pgvector_state(url)


async def open_store(
    url: str,
    *,
    cipher: Cipher,
    home: Path | None = None,
    write_seconds: float = WRITE_SECONDS,
    survive_power_cut: bool = False,
    vectors: VectorOptions = DEFAULT_VECTOR_OPTIONS,
) -> SqlStore:
    """Open ``sqlite:///relative``, ``sqlite:////absolute`` or ``postgresql://user:password@host/name``.

    SettingInvalid if the URL cannot be used. A database file inside ``home`` gets its folder created. With
    ``survive_power_cut`` a SQLite store waits for the disk at each commit; a PostgreSQL server decides that itself.
    """
    if home is not None:
        restrict_to_owner(home)
    if (path := sqlite_path(url)) is not None:
        _prepare_folder(path, home)
        return await SqliteStore.open(
            path,
            cipher=cipher,
            write_seconds=write_seconds,
            survive_power_cut=survive_power_cut,
            vectors=vectors,
        )
    if url.startswith(_POSTGRES):
        # Imported here because the driver takes long to load and most servers use SQLite.
        from holdfast.adapters.store.postgres import PostgresStore  # noqa: PLC0415 - only for those who use PostgreSQL

        return await PostgresStore.open(
            url, cipher=cipher, write_seconds=write_seconds, vectors=vectors
        )
    kind = url.partition(":")[0]
    raise SettingInvalid(
        f"A database of the kind {kind!r} is not known. Use sqlite:///path or postgresql://…"
    )


def _prepare_folder(path: Path, home: Path | None) -> None:
    if home is not None and is_inside(path, home):
        make_home(home)
        make_private_folder(path.parent)
    else:
        require_folder(path)


def is_inside(path: Path, home: Path) -> bool:
    return path.absolute().is_relative_to(home.absolute())


def require_folder(path: Path) -> None:
    """Raise SettingInvalid if the folder of the database does not exist: outside the home none is created."""
    if not path.parent.is_dir():
        folder = path.parent.absolute()
        raise SettingInvalid(
            f"The folder {folder} of the database does not exist. Create it (mkdir -p {folder}), or choose another "
            "place with HOLDFAST_DATABASE_URL."
        )
