"""Vectors through the official client, with an embedding server that works, fails or is exchanged (memory-v1 §4.6)."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from letta_client import Letta
from tests.support.server_process import ServerProcess
from tests.support.waiting import WAIT_SECONDS, try_until_done
from tests.support.wire_archives import MakeArchive, archives_of_test
from tests.support.wire_server import connect, variables

from holdfast.testing import HttpError, ScriptedProvider

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent

pytestmark = pytest.mark.slow
both_databases = pytest.mark.both_databases

MODEL = "openai/text-embedding-3-small"
OTHER_MODEL = "openai/text-embedding-3-large"
DIMENSIONS = 256
WARNINGS = "x-holdfast-warnings"


@pytest.fixture
def make_archive(client: Letta) -> Iterator[MakeArchive]:
    with archives_of_test(client) as make:
        yield make


@pytest.fixture(autouse=True)
def _synonyms(provider: ScriptedProvider) -> Iterator[None]:
    provider.embeddings.reset()
    provider.embeddings.add_synonyms("feline", "cat")
    provider.embeddings.add_synonyms("automobile", "car")
    yield
    provider.embeddings.reset()


@both_databases
@pytest.mark.memory(34)
def test_a_passage_is_stored_and_found_although_the_embedding_server_fails(
    client: Letta, make_agent: "MakeAgent", provider: ScriptedProvider
) -> None:
    provider.embeddings.default = HttpError(500, "TEST: out of order")
    agent = make_agent(embedding=MODEL)

    (passage,) = client.agents.passages.create(agent.id, text="The cat sleeps.")

    assert passage.embedding is None
    assert passage.embedding_config is not None
    assert passage.embedding_config.handle == MODEL
    found = client.agents.passages.search(agent.id, query="cat")
    assert [result.content for result in found.results] == ["The cat sleeps."]


@both_databases
@pytest.mark.memory(35)
def test_passages_without_a_word_of_the_query_are_ranked_by_their_meaning(
    client: Letta, make_archive: MakeArchive
) -> None:
    archive = make_archive(embedding=MODEL)
    for text in ("The cat sleeps.", "My cat purrs at the stove.", "A car was sold."):
        created = client.archives.passages.create(archive.id, text=text)
        assert len(created.embedding or ()) == DIMENSIONS

    for query, best in (("automobile", "A car was sold."), ("feline", "The cat sleeps.")):
        found = client.passages.search(archive_id=archive.id, query=query)
        assert len(found) == 3
        assert found[0].passage.text == best
        assert found[0].metadata is not None
        assert found[0].metadata["search_mode"] == "hybrid"
        assert found[0].metadata["vector_rank"] == 1
        assert found[0].metadata["fts_rank"] is None
        assert [item.passage.embedding for item in found] == [None] * 3


@both_databases
@pytest.mark.memory(35)
def test_no_list_has_a_vector(
    client: Letta, make_agent: "MakeAgent", make_archive: MakeArchive
) -> None:
    agent = make_agent(embedding=MODEL)
    (created,) = client.agents.passages.create(agent.id, text="The cat sleeps.")
    assert len(created.embedding or ()) == DIMENSIONS
    archive = make_archive(embedding=MODEL)
    batch = client.archives.passages.create_many(archive.id, passages=[{"text": "A car."}])

    listed = client.agents.passages.list(agent.id)

    assert [item.embedding for item in (*batch, *listed)] == [None, None]


def test_a_search_says_what_it_could_not_use(
    client: Letta, http: httpx.Client, make_archive: MakeArchive, provider: ScriptedProvider
) -> None:
    archive = make_archive(embedding=MODEL)
    client.archives.passages.create(archive.id, text="The cat sleeps.")
    provider.embeddings.script(HttpError(500, "TEST: out of order"))

    answer = http.post("/v1/passages/search", json={"query": "cat", "archive_id": archive.id})

    assert [item["metadata"]["search_mode"] for item in answer.json()] == ["fts"]
    (warning,) = json.loads(answer.headers[WARNINGS])
    assert warning.startswith(f"The embedding model {MODEL} did not answer (")


@both_databases
def test_an_archive_changes_its_model(
    client: Letta, http: httpx.Client, make_archive: MakeArchive, provider: ScriptedProvider
) -> None:
    """It is searched with its old vectors until all new ones are there."""
    archive = make_archive(embedding=MODEL)
    client.archives.passages.create_many(
        archive.id, passages=[{"text": f"The cat {number} sleeps."} for number in range(5)]
    )

    def search_mode() -> str:
        found = client.passages.search(archive_id=archive.id, query="feline")
        assert len(found) == 5
        assert found[0].metadata is not None
        return str(found[0].metadata["search_mode"])

    def reembed() -> dict[str, object]:
        answer = http.post(f"/v1/archives/{archive.id}/reembed", json={"embedding": OTHER_MODEL})
        assert answer.status_code == 200, answer.text
        state: dict[str, object] = answer.json()
        assert search_mode() == "hybrid"
        return state

    first = reembed()
    assert (first["total"], first["complete"]) == (5, first["embedded"] == 5)

    def is_complete() -> dict[str, object] | None:
        state = reembed()
        return state if state["complete"] else None

    done = try_until_done(is_complete, seconds=WAIT_SECONDS)
    assert (done["embedded"], done["failed"], done["error"]) == (5, 0, None)
    changed = client.archives.retrieve(archive.id)
    assert changed.embedding_config is not None
    assert changed.embedding_config.handle == OTHER_MODEL
    assert search_mode() == "hybrid"
    assert provider.embeddings.requests[-1].model == OTHER_MODEL.partition("/")[2]


def test_an_archive_keeps_its_model_if_the_new_one_is_unusable(
    client: Letta, http: httpx.Client, make_archive: MakeArchive
) -> None:
    archive = make_archive(embedding=MODEL)
    path = f"/v1/archives/{archive.id}/reembed"

    for handle in ("cohere/embed-v4", "nonsense"):
        assert http.post(path, json={"embedding": handle}).status_code == 400
    unknown = "/v1/archives/archive-99999999-9999-4999-8999-999999999999/reembed"
    assert http.post(unknown, json={"embedding": MODEL}).status_code == 404

    kept = client.archives.retrieve(archive.id)
    assert kept.embedding_config is not None
    assert kept.embedding_config.handle == MODEL


@pytest.fixture(scope="module")
def embedding_server(
    running_provider: ScriptedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server that makes vectors of messages."""
    settings = variables(running_provider) | {"HOLDFAST_MESSAGE_EMBEDDING": MODEL}
    server = ServerProcess.start(tmp_path_factory.mktemp("home"), **settings)
    yield server
    server.stop()


def test_messages_are_found_by_what_they_mean(
    embedding_server: ServerProcess, provider: ScriptedProvider
) -> None:
    with connect(embedding_server.address) as client:
        agent = client.agents.create(model="openai/gpt-4o-mini")
        client.agents.messages.create(agent.id, input="My cat is called Tom.")

        def find(mode: str) -> list[str]:
            found = client.messages.search(
                query="feline",
                search_mode=mode,  # type: ignore[arg-type]  # one of the three
            )
            return [str(getattr(item, "content", "")) for item in found]

        assert find("fts") == []
        for mode in ("hybrid", "vector"):
            found = try_until_done(lambda chosen=mode: find(chosen) or None, seconds=WAIT_SECONDS)  # type: ignore[misc]  # mypy does not see the default
            assert "Tom" in found[0]
