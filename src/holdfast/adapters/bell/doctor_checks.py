"""What ``holdfast doctor`` finds out about the notifications between servers."""

import asyncio
from typing import Final

from holdfast.adapters.store.factory import sqlite_path
from holdfast.ports.doctor_check import Check, Verdict

_SUBJECT: Final = "notifications"
# How long a notification may take.
_SECONDS: Final = 3.0
_MEANWHILE: Final = (
    "Until they arrive, each server asks the database at intervals what the others do."
)


async def check_notifications(
    url: str, *, listen_url: str | None, seconds: float = _SECONDS
) -> list[Check]:
    """Report whether notifications of PostgreSQL arrive. A server with SQLite is the only one and needs none."""
    if sqlite_path(url) is not None:
        return []
    return [await asyncio.to_thread(_check_notifications, url, listen_url, seconds)]


def _check_notifications(url: str, listen_url: str | None, seconds: float) -> Check:
    # Imported here because the driver takes long to load and most servers use SQLite.
    from holdfast.adapters.bell.round_trip import find_fault  # noqa: PLC0415 - see above

    fault = find_fault(url, listen_url or url, seconds=seconds)
    if fault is None:
        return Check(Verdict.GOOD, _SUBJECT, "They arrive.")
    why = fault.rstrip(".")
    if listen_url is not None:
        message = f"They do not arrive at HOLDFAST_LISTEN_URL ({why}), which must be an address of the same database, without a transaction pooler. {_MEANWHILE}"
        return Check(Verdict.PROBLEM, _SUBJECT, message)
    message = f"They do not arrive ({why}). If HOLDFAST_DATABASE_URL is that of a transaction pooler, set HOLDFAST_LISTEN_URL to an address of the same database without it. {_MEANWHILE}"
    return Check(Verdict.NOTE, _SUBJECT, message)
