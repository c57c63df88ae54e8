"""Opening the bell that suits the database."""

from collections.abc import Callable

from holdfast.adapters.bell.local import LocalBell


async def open_bell(
    database_url: str, *, listen_url: str | None, has_peers: Callable[[], bool]
) -> LocalBell:
    """Open a bell inside this process if the database is SQLite, else one for several servers."""
    if database_url.startswith("sqlite:"):
        return LocalBell()
    # Imported here because the driver takes long to load and most servers use SQLite.
    from holdfast.adapters.bell.postgres import PostgresBell  # noqa: PLC0415 - see above

    bell = PostgresBell(database_url, listen_url=listen_url, has_peers=has_peers)
    await bell.open()
    return bell
