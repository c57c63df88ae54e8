"""How the store and the home stand, without opening or changing either."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.adapters.store import migrate
from holdfast.adapters.store.cipher import KEY_FILE
from holdfast.adapters.store.file_lock import owner
from holdfast.adapters.store.opening import revision_at, sqlite_path
from holdfast.errors import BackendError
from holdfast.ports.finding import Finding, Verdict

_READABLE_BY_OTHERS = 0o077


def examine_home(home: Path) -> Iterator[Finding]:
    yield _writable("home", home)
    key = home / KEY_FILE
    if key.exists() and key.stat().st_mode & _READABLE_BY_OTHERS:
        words = f"Others can read {key}, which opens the agents' secrets: chmod 600 {key}"
        yield Finding(Verdict.PROBLEM, "secret key", words)


async def examine_store(url: str) -> Finding:
    return await asyncio.to_thread(_examine_store, url)


def _examine_store(url: str) -> Finding:
    path = sqlite_path(url)
    try:
        where, found = revision_at(url)
        migrate.needs_upgrade(found, where)
    except BackendError as error:
        return Finding(Verdict.PROBLEM, "database", str(error))
    if path is not None and not path.exists():
        return _writable("database", path)
    if path is not None and not os.access(path, os.W_OK):
        return Finding(Verdict.PROBLEM, "database", f"{where} cannot be written.")
    return Finding(Verdict.GOOD, "database", f"{where} {_state(found)}{_used_by(path)}.")


def _state(revision: str | None) -> str:
    if revision is None:
        return "is reachable and empty; the first start makes the tables"
    if revision != migrate.HEAD:
        return f"is reachable, at revision {revision}; the next start brings it to {migrate.HEAD}"
    return f"is reachable and up to date (revision {revision})"


def _used_by(path: Path | None) -> str:
    process = None if path is None else owner(path)
    return f", and in use by a server (process {process})" if process else ""


def _writable(subject: str, path: Path) -> Finding:
    """Asked by writing: permissions do not know of full disks and read-only mounts."""
    place = next(place for place in (path, *path.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
    except OSError as error:
        words = f"{path} cannot be written: {error.strerror or error}."
        return Finding(Verdict.PROBLEM, subject, words)
    words = "can be written" if place == path else "does not exist yet; the first start makes it"
    return Finding(Verdict.GOOD, subject, f"{path} {words}.")
