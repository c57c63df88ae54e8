"""What ``holdfast doctor`` finds out about the home folder and the database. Nothing is opened for writing or changed."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import KEY_FILE
from holdfast.adapters.store.factory import (
    is_inside,
    read_alive_servers_at,
    read_pgvector_state_at,
    read_revision_at,
    require_folder,
    sqlite_path,
)
from holdfast.adapters.store.file_lock import lock_owner
from holdfast.adapters.store.file_permissions import (
    can_restrict,
    is_exposed,
    is_shared_folder,
    is_visible,
    sqlite_files,
)
from holdfast.adapters.store.pgvector import PgvectorState
from holdfast.adapters.store.schema_upgrade import StoredRevision
from holdfast.core.servers import Server
from holdfast.errors import BackendError
from holdfast.ports.doctor_check import Check, Verdict

_VECTOR_CHECKS = {
    PgvectorState.USED: Check(Verdict.GOOD, "vectors", "pgvector is used."),
    PgvectorState.READY: Check(
        Verdict.GOOD, "vectors", "pgvector is there, and will be used for the first vectors."
    ),
    PgvectorState.FORBIDDEN: Check(
        Verdict.NOTE,
        "vectors",
        "pgvector is not used, so that searching many vectors is slow: the user of the database may not install it. "
        "As a superuser: CREATE EXTENSION vector",
    ),
    PgvectorState.MISSING: Check(
        Verdict.NOTE,
        "vectors",
        "pgvector is not installed where the database is, so that searching many vectors is slow.",
    ),
}


def check_home(home: Path) -> Iterator[Check]:
    writable = _check_writable("home", home)
    yield writable
    if writable.verdict is Verdict.GOOD:
        yield from _check_permissions("home", home)
    key = home / KEY_FILE
    if is_exposed(key):
        message = f"Other users of this machine can read {key}, which decrypts the agents' secrets: chmod 600 {key}"
        yield Check(Verdict.PROBLEM, "secret key", message)


async def check_store(url: str, *, home: Path | None = None) -> Check:
    return await asyncio.to_thread(_check_store, url, home)


async def check_servers(url: str) -> list[Check]:
    """Report which servers are alive on a PostgreSQL database."""
    return await asyncio.to_thread(_check_servers, url)


async def check_vectors(url: str) -> list[Check]:
    """Report whether a PostgreSQL database searches vectors with pgvector."""
    try:
        state = await asyncio.to_thread(read_pgvector_state_at, url)
    except BackendError:
        # The check of the database reports it.
        return []
    return [] if state is None else [_VECTOR_CHECKS[state]]


def check_database_files(url: str) -> Iterator[Check]:
    """Report each file of a SQLite store that other users can read."""
    path = sqlite_path(url)
    for file in () if path is None else sqlite_files(path):
        yield from _check_permissions("database", file)


def _check_store(url: str, home: Path | None) -> Check:
    path = sqlite_path(url)
    try:
        if path is not None and not (home is not None and is_inside(path, home)):
            require_folder(path)
        where, stored = read_revision_at(url)
        needs_upgrade = schema_upgrade.needs_upgrade(stored, where)
    except BackendError as error:
        return Check(Verdict.PROBLEM, "database", str(error))
    if path is not None and not path.exists():
        return _check_writable("database", path)
    if path is not None and not os.access(path, os.W_OK):
        return Check(Verdict.PROBLEM, "database", f"{where} cannot be written.")
    return Check(
        Verdict.GOOD,
        "database",
        f"{where} {_describe_revision(stored, needs_upgrade)}{_describe_owner(path)}.",
    )


def _describe_revision(stored: StoredRevision | None, needs_upgrade: bool) -> str:
    if stored is None:
        return "is reachable and empty; the first start makes the tables"
    if needs_upgrade:
        return f"is reachable, at revision {stored.number}; the next start brings it to {schema_upgrade.HEAD}"
    if stored.number != schema_upgrade.HEAD:
        return f"is reachable, and newer than this version, which can use it (revision {stored.number})"
    return f"is reachable and up to date (revision {stored.number})"


def _describe_owner(path: Path | None) -> str:
    process = None if path is None else lock_owner(path)
    return f", and in use by a server (process {process})" if process else ""


def _check_servers(url: str) -> list[Check]:
    try:
        servers = read_alive_servers_at(url)
    except BackendError:
        # The check of the database reports it.
        return []
    if servers is None:
        return []
    if not servers:
        return [Check(Verdict.GOOD, "servers", "None is alive.")]
    named = "; ".join(map(_describe_server, servers))
    checks = [Check(Verdict.GOOD, "servers", f"{len(servers)} alive: {named}.")]
    if len(versions := sorted({server.version for server in servers})) > 1:
        message = f"They have different versions: {', '.join(versions)}."
        checks.append(Check(Verdict.NOTE, "servers", message))
    return checks


def _describe_server(server: Server) -> str:
    load = server.load
    marks = [
        f"process {server.process.pid}",
        f"role {server.role}",
        f"{load.live_runs} of {server.max_runs} runs",
        "" if load.is_notified else "polling",
        "stopping" if load.is_draining else "",
    ]
    return f"{server.id} on {server.host} ({', '.join(filter(None, marks))})"


def _check_writable(subject: str, path: Path) -> Check:
    """Try to write: permission bits do not show full disks and read-only file systems."""
    existing = next(place for place in (path, *path.parents) if is_visible(place))
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}."
        return Check(Verdict.PROBLEM, subject, message)
    state = "can be written" if existing == path else "does not exist yet; the first start makes it"
    return Check(Verdict.GOOD, subject, f"{path} {state}.")


def _check_permissions(subject: str, path: Path) -> Iterator[Check]:
    if not is_exposed(path):
        return
    exposed = f"Other users of this machine can read {path}"
    if can_restrict(path):
        message = f"{exposed}; the next start of the server restricts it to its owner."
        yield Check(Verdict.NOTE, subject, message)
    elif is_shared_folder(path):
        message = f"{exposed}, a folder that all users share: choose another with HOLDFAST_HOME."
        yield Check(Verdict.PROBLEM, subject, message)
    else:
        message = f"{exposed}, which belongs to another user: chmod go= {path}"
        yield Check(Verdict.PROBLEM, subject, message)
