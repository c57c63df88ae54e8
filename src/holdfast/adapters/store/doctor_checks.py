"""How the store and the home stand, without opening or changing either."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import KEY_FILE
from holdfast.adapters.store.factory import read_revision_at, sqlite_path
from holdfast.adapters.store.file_lock import lock_owner
from holdfast.errors import BackendError
from holdfast.ports.doctor_check import Check, Verdict

_READABLE_BY_OTHERS = 0o077


def check_home(home: Path) -> Iterator[Check]:
    yield _check_writable("home", home)
    key = home / KEY_FILE
    if key.exists() and key.stat().st_mode & _READABLE_BY_OTHERS:
        words = f"Others can read {key}, which opens the agents' secrets: chmod 600 {key}"
        yield Check(Verdict.PROBLEM, "secret key", words)


async def check_store(url: str) -> Check:
    return await asyncio.to_thread(_check_store, url)


def _check_store(url: str) -> Check:
    path = sqlite_path(url)
    try:
        where, found = read_revision_at(url)
        schema_upgrade.needs_upgrade(found, where)
    except BackendError as error:
        return Check(Verdict.PROBLEM, "database", str(error))
    if path is not None and not path.exists():
        return _check_writable("database", path)
    if path is not None and not os.access(path, os.W_OK):
        return Check(Verdict.PROBLEM, "database", f"{where} cannot be written.")
    return Check(
        Verdict.GOOD, "database", f"{where} {_describe_revision(found)}{_describe_owner(path)}."
    )


def _describe_revision(revision: str | None) -> str:
    if revision is None:
        return "is reachable and empty; the first start makes the tables"
    if revision != schema_upgrade.HEAD:
        return f"is reachable, at revision {revision}; the next start brings it to {schema_upgrade.HEAD}"
    return f"is reachable and up to date (revision {revision})"


def _describe_owner(path: Path | None) -> str:
    process = None if path is None else lock_owner(path)
    return f", and in use by a server (process {process})" if process else ""


def _check_writable(subject: str, path: Path) -> Check:
    """Asked by writing: permissions do not know of full disks and read-only mounts."""
    place = next(place for place in (path, *path.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
    except OSError as error:
        words = f"{path} cannot be written: {error.strerror or error}."
        return Check(Verdict.PROBLEM, subject, words)
    words = "can be written" if place == path else "does not exist yet; the first start makes it"
    return Check(Verdict.GOOD, subject, f"{path} {words}.")
