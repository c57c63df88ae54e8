"""Which store a URL means."""

from pathlib import Path

from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.sql_store import SqlStore
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.errors import SettingInvalid

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")


async def open_store(url: str, *, cipher: Cipher) -> SqlStore:
    """``sqlite:///relative``, ``sqlite:////absolute`` or ``postgresql://user:password@host/name``."""
    if url.startswith(_SQLITE):
        return await SqliteStore.open(Path(url.removeprefix(_SQLITE)), cipher=cipher)
    if url.startswith(_POSTGRES):
        # Imported here because the driver takes long to load and most servers use SQLite.
        from holdfast.adapters.store.postgres import PostgresStore  # noqa: PLC0415

        return await PostgresStore.open(url, cipher=cipher)
    kind = url.partition(":")[0]
    raise SettingInvalid(
        f"A database of the kind {kind!r} is not known. Use sqlite:///path or postgresql://…"
    )
