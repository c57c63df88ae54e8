"""The job queue on PostgreSQL: it is the same in new and in upgraded databases, and no job outlives its run."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.old_database import migrate

from holdfast import __version__
from holdfast.adapters.store import procrastinate_schema
from holdfast.adapters.store.cipher import Cipher
from holdfast.adapters.store.factory import open_store
from holdfast.errors import CannotStart

pytestmark = pytest.mark.slow

# Everything that exists in a database, by the catalogue. The last value of each row is the definition.
CATALOGUE = {
    "columns": """
        SELECT table_schema, table_name, ordinal_position, column_name, data_type, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema IN ('public', 'holdfast_queue')
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace::regnamespace::text IN ('public', 'holdfast_queue')
    """,
    "indexes": """
        SELECT schemaname, indexname, indexdef FROM pg_indexes
        WHERE schemaname IN ('public', 'holdfast_queue')
    """,
    "functions": """
        SELECT pronamespace::regnamespace::text, proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace::regnamespace::text IN ('public', 'holdfast_queue')
    """,
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
        WHERE NOT tgisinternal
    """,
    "facts": "SELECT key, value FROM deployment WHERE key <> 'secret_key_check'",
}

THREADS = """
INSERT INTO agents (id, organization_id, name, created_at, updated_at, body)
VALUES ('agent', 'org', 'a', 1, 1, '{}');
INSERT INTO threads (id, organization_id, agent_id, created_at, updated_at, body)
VALUES ('t1', 'org', 'agent', 1, 1, '{}'), ('t2', 'org', 'agent', 1, 1, '{}');
"""
RUN = """
INSERT INTO runs (
    id, organization_id, agent_id, thread_id, status, background, created_at, num_steps, reserved_seq, metadata, body
) VALUES (%s, 'org', 'agent', %s, %s, false, %s, 0, 0, '{}', '{}')
"""
JOBS = """
SELECT queueing_lock, status::text, lock, queue_name, task_name, args, worker_id
FROM holdfast_queue.procrastinate_jobs ORDER BY id
"""
OTHER_SERVER = """
INSERT INTO servers (
    id, host, pid, version, role, max_runs, started_at, heartbeat_at, lease_ends_at, live_runs, is_notified, is_draining
) SELECT 'other', 'host', 1, %s, 'all', 1, 1, 1, extract(epoch FROM now() + %s::interval) * 1000000, 0, true, false
"""


def read_catalogue(url: str) -> dict[str, list[Any]]:
    with psycopg.connect(url) as connection:
        return {
            name: sorted(connection.execute(query.encode()).fetchall(), key=repr)
            for name, query in CATALOGUE.items()
        }


async def start_server(url: str, cipher: Cipher) -> None:
    await (await open_store(url, cipher=cipher)).close()


async def test_a_new_database_is_as_an_upgraded_one(
    postgres_url: str, blank_postgres_url: str, cipher: Cipher
) -> None:
    migrate(postgres_url, "0002")
    await start_server(postgres_url, cipher)
    assert read_catalogue(postgres_url) == read_catalogue(blank_postgres_url)


async def test_an_upgrade_gives_each_live_run_its_job_in_their_order(
    postgres_url: str, cipher: Cipher
) -> None:
    """Those that were begun come first. Whoever executed them has stopped, so all of them wait."""
    migrate(postgres_url, "0002")
    with psycopg.connect(postgres_url) as connection:
        connection.execute(THREADS.encode())
        for run in [
            ("last", "t1", "queued", 50),
            ("ended", "t1", "completed", 10),
            ("first", "t1", "running", 20),
            ("paused", "t2", "paused", 25),
            ("second", "t2", "cancelling", 30),
            ("third", "t1", "queued", 40),
        ]:
            connection.execute(RUN.encode(), run)
    await start_server(postgres_url, cipher)
    with psycopg.connect(postgres_url) as connection:
        jobs = connection.execute(JOBS.encode()).fetchall()
        assert [job[:3] for job in jobs] == [
            ("first", "todo", "t1"),
            ("second", "todo", "t2"),
            ("third", "todo", "t1"),
            ("last", "todo", "t1"),
        ]
        assert jobs[0][3:] == ("runs", "holdfast.run", {"run_id": "first"}, None)
        owners = connection.execute("SELECT DISTINCT owner_id, fence FROM runs").fetchall()
        assert owners == [(None, 0)]


@pytest.fixture
def queue(blank_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with two threads. Its search path is the ordinary one."""
    with psycopg.connect(blank_postgres_url, autocommit=True) as connection:
        connection.execute(THREADS.encode())
        yield connection


def add_run(queue: psycopg.Connection[Any], run_id: str, thread_id: str) -> None:
    """Add a queued run and defer its job, with the function of Procrastinate."""
    created_at = queue.execute("SELECT count(*) FROM runs").fetchone()
    assert created_at is not None
    queue.execute(RUN.encode(), (run_id, thread_id, "queued", *created_at))
    job = "ROW('runs', 'holdfast.run', 0, %s, %s, '{}', NULL)"
    queue.execute(
        f"SELECT holdfast_queue.procrastinate_defer_jobs_v1(ARRAY[{job}::"
        "holdfast_queue.procrastinate_job_to_defer_v1])".encode(),
        (thread_id, run_id),
    )


def claim_run(queue: psycopg.Connection[Any]) -> str:
    found = queue.execute(
        "SELECT queueing_lock FROM holdfast_queue.procrastinate_fetch_job_v2(NULL, NULL)"
    ).fetchone()
    assert found is not None
    queue.execute("UPDATE runs SET status = 'running' WHERE id = %s", found)
    return str(found[0])


def list_jobs(queue: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    return [(run_id, status) for run_id, status, *_ in queue.execute(JOBS.encode())]


async def test_the_functions_work_with_the_search_path_of_any_caller(
    queue: psycopg.Connection[Any],
) -> None:
    add_run(queue, "one", "t1")
    queue.execute("SET search_path = pg_catalog")
    found = queue.execute(
        "SELECT id FROM holdfast_queue.procrastinate_fetch_job_v2(ARRAY['runs'], NULL)"
    ).fetchone()
    assert found is not None
    queue.execute(
        "SELECT holdfast_queue.procrastinate_retry_job_v2(%s, now(), 1, NULL, NULL)", found
    )
    assert list_jobs(queue) == [("one", "todo")]
    queue.execute("SELECT holdfast_queue.procrastinate_finish_job_v1(%s, 'failed', true)", found)
    assert list_jobs(queue) == []


async def test_a_deleted_run_takes_its_own_job_along(queue: psycopg.Connection[Any]) -> None:
    for run_id, thread_id in [("one", "t1"), ("two", "t1"), ("three", "t2"), ("four", "t2")]:
        add_run(queue, run_id, thread_id)
    assert [claim_run(queue), claim_run(queue)] == ["one", "three"]

    queue.execute("DELETE FROM runs WHERE id = 'two'")
    assert list_jobs(queue) == [("one", "doing"), ("three", "doing"), ("four", "todo")]
    queue.execute("DELETE FROM runs WHERE id = 'three'")
    assert list_jobs(queue) == [("one", "doing"), ("four", "todo")]
    queue.execute("UPDATE runs SET status = 'cancelling' WHERE id = 'one'")
    queue.execute("DELETE FROM runs WHERE id = 'one'")
    assert list_jobs(queue) == [("four", "todo")]


@pytest.mark.parametrize("table", ["agents", "threads"])
async def test_what_deletes_runs_deletes_their_jobs(
    queue: psycopg.Connection[Any], table: str
) -> None:
    for run_id in ("one", "two", "three"):
        add_run(queue, run_id, "t1")
    claim_run(queue)
    queue.execute(f"DELETE FROM {table}".encode())
    assert list_jobs(queue) == []
    assert queue.execute("SELECT count(*) FROM holdfast_queue.procrastinate_events").fetchone() == (
        0,
    )


@pytest.fixture
def sql_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The SQL of a newer Procrastinate: a test may add migrations."""
    folder = tmp_path / "sql"
    shutil.copytree(procrastinate_schema._sql_folder(), folder)
    monkeypatch.setattr(procrastinate_schema, "_sql_folder", lambda: folder)
    return folder


# A value of an enum cannot be used in the transaction that adds it.
NEXT_MIGRATIONS = {
    "90.00.00_01_pre_paused.sql": "ALTER TYPE procrastinate_job_status ADD VALUE 'paused'",
    "90.00.00_50_post_paused.sql": """
        UPDATE procrastinate_jobs SET status = 'paused' WHERE false;
        CREATE FUNCTION procrastinate_count() RETURNS bigint LANGUAGE sql
        AS $$ SELECT count(*) FROM procrastinate_jobs WHERE status <> 'paused' $$
    """,
    "90.01.00_01_pre_more.sql": "CREATE TABLE more (id bigint); -- 100 %",
}
FIRST, SECOND, THIRD = NEXT_MIGRATIONS


def release_procrastinate(sql_folder: Path) -> None:
    for name, script in NEXT_MIGRATIONS.items():
        (sql_folder / "migrations" / name).write_text(script)


def read_migration(url: str) -> str:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT value FROM deployment WHERE key = 'procrastinate_migration'"
        ).fetchone()
    assert found is not None
    return str(found[0])


async def test_the_migrations_of_a_newer_procrastinate_are_applied_at_the_start(
    blank_postgres_url: str, cipher: Cipher, sql_folder: Path
) -> None:
    release_procrastinate(sql_folder)
    await start_server(blank_postgres_url, cipher)
    assert read_migration(blank_postgres_url) == THIRD
    with psycopg.connect(blank_postgres_url) as connection:
        connection.execute("SET search_path = pg_catalog")
        counted = connection.execute("SELECT holdfast_queue.procrastinate_count()")
        assert counted.fetchone() == (0,)
        assert connection.execute("SELECT * FROM holdfast_queue.more").fetchall() == []
    await start_server(blank_postgres_url, cipher)


@pytest.mark.parametrize(
    ("version", "lease", "applied"),
    [
        ("0.0.1", "1 hour", FIRST),
        ("0.0.1", None, FIRST),
        ("0.0.1", "-1 second", THIRD),
        (__version__, "1 hour", THIRD),
    ],
    ids=["other version", "other version for ever", "dead", "same version"],
)
async def test_what_an_older_server_may_need_stays_while_it_lives(
    blank_postgres_url: str,
    cipher: Cipher,
    sql_folder: Path,
    version: str,
    lease: str | None,
    applied: str,
) -> None:
    release_procrastinate(sql_folder)
    with psycopg.connect(blank_postgres_url) as connection:
        connection.execute(OTHER_SERVER.encode(), (version, lease))
    await start_server(blank_postgres_url, cipher)
    assert read_migration(blank_postgres_url) == applied
    with psycopg.connect(blank_postgres_url) as connection:
        connection.execute("DELETE FROM servers")
    await start_server(blank_postgres_url, cipher)
    assert read_migration(blank_postgres_url) == THIRD


async def test_an_older_procrastinate_changes_nothing(
    blank_postgres_url: str, cipher: Cipher, sql_folder: Path
) -> None:
    newest = read_migration(blank_postgres_url)
    (sql_folder / "migrations" / newest).unlink()
    await start_server(blank_postgres_url, cipher)
    assert read_migration(blank_postgres_url) == newest


async def test_procrastinate_itself_is_not_imported(
    postgres_url: str, cipher: Cipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import would slow down every start."""
    monkeypatch.delitem(sys.modules, "procrastinate", raising=False)
    await start_server(postgres_url, cipher)
    assert "procrastinate" not in sys.modules


async def test_a_user_that_cannot_make_the_schema_is_told_so(
    postgres_url: str, cipher: Cipher
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE modest LOGIN")
        try:
            connection.execute("GRANT ALL ON SCHEMA public TO modest")
            url = make_url(postgres_url).set(username="modest")
            modest_url = url.render_as_string(hide_password=False)
            with pytest.raises(CannotStart, match="and the schema holdfast_queue unless it exists"):
                await start_server(modest_url, cipher)
            connection.execute("CREATE SCHEMA holdfast_queue AUTHORIZATION modest")
            await start_server(modest_url, cipher)
        finally:
            connection.execute("DROP OWNED BY modest")
            connection.execute("DROP ROLE modest")
