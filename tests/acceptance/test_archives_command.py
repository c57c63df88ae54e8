"""``holdfast archives`` against a running server; and a server without vectors does not pay for them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from letta_client import Letta
from tests.support.server_process import Command, ServerProcess, StartServer
from tests.support.wire_server import connect, variables

from holdfast.testing import HttpError, ScriptedProvider

pytestmark = pytest.mark.slow

OLD = "openai/text-embedding-3-small"
NEW = "openai/text-embedding-3-large"


@pytest.fixture
def server(start_server: StartServer, provider: ScriptedProvider) -> ServerProcess:
    provider.embeddings.reset()
    return start_server(**variables(provider))


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Letta]:
    with connect(server.address) as letta:
        yield letta


def add_archive(client: Letta, count: int = 3) -> str:
    archive = client.archives.create(name="notes", embedding=OLD)
    client.archives.passages.create_many(
        archive.id, passages=[{"text": f"Fact {number}."} for number in range(count)]
    )
    return archive.id


def handle_of(client: Letta, archive_id: str) -> str | None:
    config = client.archives.retrieve(archive_id).embedding_config
    return None if config is None else config.handle


def test_the_model_of_an_archive_is_changed(
    holdfast: Command, server: ServerProcess, client: Letta
) -> None:
    archive_id = add_archive(client)
    listed = holdfast("archives", "list", "--url", server.address)
    assert [word in listed.stdout for word in (archive_id, "notes", OLD)] == [True] * 3

    done = holdfast("archives", "reembed", archive_id, "--model", NEW, "--url", server.address)

    assert (done.returncode, handle_of(client, archive_id)) == (0, NEW), done.stderr
    assert done.stdout == f"{archive_id} has the model {NEW}: 3 of 3 passages have vectors.\n"
    again = holdfast(
        "archives", "reembed", archive_id, "--model", NEW, "--json", "--url", server.address
    )
    assert json.loads(again.stdout)["complete"] is True


def test_an_archive_keeps_its_model_if_the_new_one_refuses_its_texts(
    holdfast: Command, server: ServerProcess, client: Letta, provider: ScriptedProvider
) -> None:
    archive_id = add_archive(client)
    command = ("archives", "reembed", archive_id, "--model", NEW, "--url", server.address)
    provider.embeddings.default = HttpError(401, "TEST: wrong key")

    refused = holdfast(*command)

    assert (refused.returncode, handle_of(client, archive_id)) == (1, OLD)
    assert "3 of 3 passages could not be embedded" in refused.stderr
    provider.embeddings.reset()
    # What was given up is tried again.
    assert holdfast(*command).returncode == 0
    assert handle_of(client, archive_id) == NEW


def test_unusable_names_are_refused_with_a_sentence(
    holdfast: Command, server: ServerProcess, client: Letta
) -> None:
    archive_id = add_archive(client)
    unknown = "archive-00000000-0000-4000-8000-000000000000"
    for archive, model in ((archive_id, "cohere/embed-v4"), (unknown, NEW)):
        refused = holdfast(
            "archives", "reembed", archive, "--model", model, "--url", server.address
        )

        assert (refused.returncode, refused.stdout) == (1, "")
        assert (model if archive == archive_id else unknown) in refused.stderr


def list_loaded(server: ServerProcess, library: str) -> bool:
    return f"/{library}/" in Path(f"/proc/{server.pid}/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux shows what is loaded")
def test_numpy_is_loaded_with_the_first_vector(
    run_server_command: StartServer, provider: ScriptedProvider
) -> None:
    provider.embeddings.reset()
    server = run_server_command(**variables(provider))
    with connect(server.address) as client:
        plain = client.archives.create(name="words")
        client.archives.passages.create(plain.id, text="A fact.")
        assert len(client.passages.search(archive_id=plain.id, query="fact")) == 1
        assert not list_loaded(server, "numpy")

        archive_id = add_archive(client)
        assert len(client.passages.search(archive_id=archive_id, query="fact")) == 3
        assert list_loaded(server, "numpy")
