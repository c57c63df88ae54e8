"""Which store a URL means."""

from pathlib import Path

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import SettingInvalid

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")


def sqlite_path(url: str) -> Path | None:
    """The file that the address means; None if it means another kind of database."""
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def read_revision_at(url: str) -> tuple[str, str | None]:
    """The place without its password, and the revision of the store there: None if there is none yet."""
    if (path := sqlite_path(url)) is not None:
        return str(path), schema_upgrade.read_file_revision(path)
    from holdfast.adapters.store.postgres import read_revision_at  # noqa: PLC0415 - only for those who use PostgreSQL - see below

    return read_revision_at(url)


async def open_store(url: str, *, cipher: Cipher) -> SqlStore:
    """``sqlite:///relative``, ``sqlite:////absolute`` or ``postgresql://user:password@host/name``."""
    if (path := sqlite_path(url)) is not None:
        return await SqliteStore.open(path, cipher=cipher)
    if url.startswith(_POSTGRES):
        # Imported here because the driver takes long to load and most servers use SQLite.
        from holdfast.adapters.store.postgres import PostgresStore  # noqa: PLC0415 - only for those who use PostgreSQL

        return await PostgresStore.open(url, cipher=cipher)
    kind = url.partition(":")[0]
    raise SettingInvalid(
        f"A database of the kind {kind!r} is not known. Use sqlite:///path or postgresql://…"
    )
